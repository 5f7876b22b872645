"""Datasets fetched from a hub: the real client against a small hub on this machine."""

from __future__ import annotations

import shutil

import pytest
from layouts import beir_hub, beir_mteb, write_parquet

SECTION = {"source": "hub", "path": "someone/msmarco", "split": "dev"}


def write_rows(folder, rows, split="dev"):
    queries, positives = map(list, zip(*rows, strict=True))
    write_parquet(folder / f"data/{split}-00000-of-00001.parquet", query=queries, positive=positives)


@pytest.fixture
def folder(tmp_path):
    """A dataset like `namespace-Pt/msmarco`: no README that names its files, two splits."""
    path = tmp_path / "dataset"
    write_rows(path, [("first?", ["alpha", "beta"]), ("second?", ["gamma"])])
    write_rows(path, [("no", ["no"])], "train")
    (path / "README.md").write_text("---\nlicense: mit\n---\n# A dataset\n")
    return path


@pytest.fixture
def fetch(ask):
    """Loads that dataset from the hub; see `ask`."""

    def one(settings, **environment):
        (found,) = ask({**SECTION, **settings}, **environment)
        return found

    return one


def test_branch_becomes_its_commit_and_only_the_split_is_fetched_once(hub_server, folder, fetch):
    commit = hub_server.publish("dataset", "someone/msmarco", folder)
    identity, made = fetch({})
    assert list(made.passages.values()) == ["alpha", "beta", "gamma"]
    assert identity["passages"]["corpus"]["commit"] == commit
    assert fetch({"revision": commit})[0] == identity
    assert sorted(hub_server.downloads()) == ["README.md", "data/dev-00000-of-00001.parquet"]


def test_a_new_commit_is_another_collection_and_the_old_one_stays(hub_server, folder, fetch):
    old = hub_server.publish("dataset", "someone/msmarco", folder)
    before, _ = fetch({})
    write_rows(folder, [("first?", ["alpha", "better"])])
    new = hub_server.publish("dataset", "someone/msmarco", folder)
    after, made = fetch({})
    assert after["passages"]["corpus"]["commit"] == new
    assert "better" in made.passages.values()
    assert fetch({"revision": old})[0] == before


def test_it_works_offline_afterwards(hub_server, folder, fetch):
    hub_server.publish("dataset", "someone/msmarco", folder)
    online, _ = fetch({})
    seen = len(hub_server.requests)
    assert fetch({}, HF_HUB_OFFLINE="1")[0] == online
    assert len(hub_server.requests) == seen
    hub_server.close()
    assert fetch({})[0] == online


def test_a_half_downloaded_commit_is_not_taken_for_whole(hub_server, folder, fetch, tmp_path):
    first = folder / "data" / "dev-00000-of-00001.parquet"
    shutil.copy(first, folder / "data" / "dev-00001-of-00002.parquet")
    first.rename(folder / "data" / "dev-00000-of-00002.parquet")
    hub_server.publish("dataset", "someone/msmarco", folder)
    fetch({})
    (lost,) = (tmp_path / "home" / "hub").rglob("dev-00001-of-00002.parquet")
    lost.unlink()
    said = fetch({}, HF_HUB_OFFLINE="1")
    assert "'someone/msmarco'" in said
    assert "not whole" in said


def test_what_cannot_be_fetched_is_said(hub_server, folder, fetch, ask):
    hub_server.publish("dataset", "someone/msmarco", folder)
    wrong = {
        "the hub has no dataset 'someone/msmacro'": {"path": "someone/msmacro"},
        "no revision 'v9'": {"revision": "v9"},
        "'test'": {"split": "test"},
        "no column 'question'": {"query_column": "question"},
        "the hub has no dataset 'someone/corpus'": {"corpus_path": "someone/corpus"},
    }
    said = ask(*({**SECTION, **settings} for settings in wrong.values()))
    assert [words for words, message in zip(wrong, said, strict=True) if words not in message] == []
    assert "HF_HUB_OFFLINE" in fetch({"path": "someone/else"}, HF_HUB_OFFLINE="1")
    hub_server.close()
    assert "cannot be reached" in fetch({"path": "someone/else"})


def test_corpus_of_a_second_dataset(hub_server, folder, fetch, tmp_path):
    write_parquet(tmp_path / "corpus/data/train-00000-of-00001.parquet", content=["gamma", "zeta"])
    hub_server.publish("dataset", "someone/msmarco", folder)
    commit = hub_server.publish("dataset", "someone/corpus", tmp_path / "corpus", branch="v1")
    identity, made = fetch({"corpus_path": "someone/corpus", "corpus_revision": "v1"})
    assert identity["passages"]["corpus"]["commit"] == commit
    assert (made.facts["passages"], made.facts["queries"]) == (2, 2)


def test_beir_with_judgments_in_their_own_repository(hub_server, fetch, tmp_path, plain):
    beir_hub(tmp_path / "tiny", plain)
    commits = [
        hub_server.publish("dataset", f"BeIR/{name}", tmp_path / name) for name in ("tiny", "tiny-qrels")
    ]
    identity, made = fetch({"source": "beir", "path": "BeIR/tiny", "split": "test"})
    assert identity["passages"]["corpus"]["commit"] == commits[0]
    assert identity["qrels"]["qrels"]["commit"] == commits[1]
    assert (made.facts["passages"], made.facts["judgments"]) == (12, 5)


def test_mtebs_tables_in_one_repository(hub_server, fetch, tmp_path, plain):
    beir_mteb(tmp_path / "tiny", plain)
    commit = hub_server.publish("dataset", "mteb/tiny", tmp_path / "tiny")
    identity, made = fetch({"source": "beir", "path": "mteb/tiny", "split": "test"})
    assert identity["qrels"]["qrels"]["commit"] == commit
    assert (made.facts["passages"], made.facts["judgments"]) == (12, 5)
