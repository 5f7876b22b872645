"""Datasets fetched from a hub: the real client against a small hub on this machine."""

import shutil

import pytest
from huggingface_hub import close_session
from inside import be_offline
from layouts import beir_hub, beir_mteb, write_parquet

from pipeline import InputError
from pipeline.config import SOURCES

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
def fetch(hub, loaded):
    """Loads that dataset from the hub; some settings may be different."""
    return lambda **settings: loaded(SOURCES.make(**{**SECTION, **settings}))


def leave(hub):
    """Close the hub and the connections that are open to it."""
    hub.close()
    close_session()


def test_a_half_downloaded_commit_is_not_taken_for_whole(hub, folder, fetch, tmp_path, monkeypatch):
    first = folder / "data" / "dev-00000-of-00001.parquet"
    shutil.copy(first, folder / "data" / "dev-00001-of-00002.parquet")
    first.rename(folder / "data" / "dev-00000-of-00002.parquet")
    hub.publish("dataset", "someone/msmarco", folder)
    fetch()
    (lost,) = (tmp_path / "home" / "hub").rglob("dev-00001-of-00002.parquet")
    lost.unlink()
    be_offline(monkeypatch)
    with pytest.raises(InputError, match=r"'someone/msmarco' .* is not whole"):
        fetch()


def test_what_cannot_be_fetched_is_said(hub, folder, fetch, monkeypatch):
    hub.publish("dataset", "someone/msmarco", folder)
    for setting, value, message in (
        ("path", "someone/msmacro", "the hub has no dataset 'someone/msmacro'"),
        ("revision", "v9", "no revision 'v9'"),
        ("split", "test", "'test'"),
        ("query_column", "question", "no column 'question'"),
        ("corpus_path", "someone/corpus", "the hub has no dataset 'someone/corpus'"),
    ):
        with pytest.raises(InputError, match=message):
            fetch(**{setting: value})
    leave(hub)
    for offline, message in ((True, "HF_HUB_OFFLINE"), (False, "cannot be reached")):
        be_offline(monkeypatch, offline)
        with pytest.raises(InputError, match=message):
            fetch(path="someone/else")


@pytest.mark.parametrize(("write", "judged"), [(beir_hub, "tiny-qrels"), (beir_mteb, "tiny")])
def test_beir_with_judgments_beside_its_texts_or_in_a_second_repository(
    hub, fetch, tmp_path, plain, write, judged
):
    write(tmp_path / "tiny", plain)
    commits = {name: hub.publish("dataset", f"someone/{name}", tmp_path / name) for name in {"tiny", judged}}
    made = fetch(source="beir", path="someone/tiny", split="test")
    assert made.identity.passages["corpus"]["commit"] == commits["tiny"]
    assert made.identity.qrels["qrels"]["commit"] == commits[judged]
    assert (made.facts["passages"], made.facts["judgments"]) == (12, 5)
