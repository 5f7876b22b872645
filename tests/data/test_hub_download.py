"""Datasets fetched from a hub: the real client against a small hub on this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest

CODE = """
import dataclasses, json, sys
from pathlib import Path
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store
from pipeline.config import SOURCES
from pipeline.data import identify, load
from pipeline.core.errors import InputError
try:
    config = SOURCES.make(**json.loads(sys.argv[1]))
    identity = dataclasses.asdict(identify(config))
    store = Store(Path(sys.argv[2]))
    artifact = store.make(Recipe("data", identity), lambda draft: load(config, draft), fresh=True)
    print(json.dumps({"identity": identity, "facts": artifact.facts}))
except InputError as error:
    print(json.dumps({"error": str(error)}))
"""


def write_rows(folder, rows, split="dev"):
    (folder / "data").mkdir(parents=True, exist_ok=True)
    table = pa.table({"query": [query for query, _ in rows], "positive": [texts for _, texts in rows]})
    pa.parquet.write_table(table, folder / "data" / f"{split}-00000-of-00001.parquet")


@pytest.fixture
def folder(tmp_path):
    """A dataset like `namespace-Pt/msmarco`: no README that names its files, two splits."""
    path = tmp_path / "dataset"
    write_rows(path, [("first?", ["alpha", "beta"]), ("second?", ["gamma"])])
    write_rows(path, [("no", ["no"])], "train")
    (path / "README.md").write_text("---\nlicense: mit\n---\n# A dataset\n")
    return path


@pytest.fixture
def ask(hub_server, tmp_path):
    """Identifies and loads in a fresh process that knows only this hub."""

    def run(settings, home="home", **environment):
        config = json.dumps({"source": "hub", "path": "someone/msmarco", "split": "dev", **settings})
        done = subprocess.run(
            [sys.executable, "-c", CODE, config, str(tmp_path / "store")],
            env=hub_server.environment(tmp_path / home, **environment),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_branch_becomes_its_commit_and_only_the_split_is_fetched_once(hub_server, folder, ask):
    commit = hub_server.publish("dataset", "someone/msmarco", folder)
    first = ask({})
    assert first["facts"]["passages"] == 3
    assert first["identity"]["passages"]["corpus"]["commit"] == commit
    assert ask({"revision": commit})["identity"] == first["identity"]
    assert sorted(hub_server.downloads()) == ["README.md", "data/dev-00000-of-00001.parquet"]


def test_a_new_commit_is_another_collection_and_the_old_one_stays(hub_server, folder, ask):
    old = hub_server.publish("dataset", "someone/msmarco", folder)
    before = ask({})
    write_rows(folder, [("first?", ["alpha", "better"])])
    new = hub_server.publish("dataset", "someone/msmarco", folder)
    after = ask({})
    assert after["identity"]["passages"]["corpus"]["commit"] == new
    assert after["facts"]["content"] != before["facts"]["content"]
    assert ask({"revision": old}) == before


def test_it_works_offline_afterwards(hub_server, folder, ask):
    hub_server.publish("dataset", "someone/msmarco", folder)
    online = ask({})
    seen = len(hub_server.requests)
    assert ask({}, HF_HUB_OFFLINE="1") == online
    assert len(hub_server.requests) == seen
    hub_server.close()
    assert ask({}) == online


def test_offline_with_an_empty_cache_says_what_is_missing(hub_server, folder, ask):
    hub_server.publish("dataset", "someone/msmarco", folder)
    error = ask({}, HF_HUB_OFFLINE="1")["error"]
    assert "'someone/msmarco'" in error
    assert "HF_HUB_OFFLINE" in error


def test_a_half_downloaded_commit_is_not_taken_for_whole(hub_server, folder, ask, tmp_path):
    write_rows(folder, [("third?", ["delta"])], "dev")
    shutil.copy(
        folder / "data" / "dev-00000-of-00001.parquet", folder / "data" / "dev-00001-of-00002.parquet"
    )
    (folder / "data" / "dev-00000-of-00001.parquet").rename(folder / "data" / "dev-00000-of-00002.parquet")
    hub_server.publish("dataset", "someone/msmarco", folder)
    ask({})
    (lost,) = (tmp_path / "home" / "hub").rglob("dev-00001-of-00002.parquet")
    lost.unlink()
    error = ask({}, HF_HUB_OFFLINE="1")["error"]
    assert "'someone/msmarco'" in error
    assert "not whole" in error


def test_server_gone_and_nothing_cached(hub_server, ask):
    hub_server.close()
    error = ask({})["error"]
    assert "'someone/msmarco'" in error
    assert "cannot be reached" in error


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"path": "someone/msmacro"}, ["the hub has no dataset 'someone/msmacro'"]),
        ({"revision": "v9"}, ["no revision 'v9'"]),
        ({"split": "test"}, ["'test'", "someone/msmarco"]),
        ({"query_column": "question"}, ["no column 'question'", "query"]),
        ({"corpus_path": "someone/corpus"}, ["the hub has no dataset 'someone/corpus'"]),
    ],
)
def test_wrong_names(hub_server, folder, ask, settings, words):
    hub_server.publish("dataset", "someone/msmarco", folder)
    error = ask(settings)["error"]
    for word in words:
        assert word in error


def test_corpus_of_a_second_dataset(hub_server, folder, ask, tmp_path):
    corpus = tmp_path / "corpus"
    (corpus / "data").mkdir(parents=True)
    pa.parquet.write_table(
        pa.table({"content": ["gamma", "zeta"]}), corpus / "data" / "train-00000-of-00001.parquet"
    )
    hub_server.publish("dataset", "someone/msmarco", folder)
    commit = hub_server.publish("dataset", "someone/corpus", corpus, branch="v1")
    made = ask({"corpus_path": "someone/corpus", "corpus_revision": "v1"})
    assert made["identity"]["passages"]["corpus"]["commit"] == commit
    assert (made["facts"]["passages"], made["facts"]["queries"]) == (2, 2)


def test_beir_with_judgments_in_their_own_repository(hub_server, ask, tmp_path, plain, write_beir_hub):
    write_beir_hub(tmp_path / "tiny", plain)
    commits = [
        hub_server.publish("dataset", f"BeIR/{name}", tmp_path / name) for name in ("tiny", "tiny-qrels")
    ]
    made = ask({"source": "beir", "path": "BeIR/tiny", "split": "test"})
    assert made["identity"]["passages"]["corpus"]["commit"] == commits[0]
    assert made["identity"]["qrels"]["qrels"]["commit"] == commits[1]
    assert (made["facts"]["passages"], made["facts"]["judgments"]) == (12, 5)


def test_mtebs_tables_in_one_repository(hub_server, ask, tmp_path, plain, write_beir_mteb):
    write_beir_mteb(tmp_path / "tiny", plain)
    commit = hub_server.publish("dataset", "mteb/tiny", tmp_path / "tiny")
    made = ask({"source": "beir", "path": "mteb/tiny", "split": "test"})
    assert made["identity"]["qrels"]["qrels"]["commit"] == commit
    assert (made["facts"]["passages"], made["facts"]["judgments"]) == (12, 5)
