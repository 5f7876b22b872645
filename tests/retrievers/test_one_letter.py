"""One letter of a real passage edited: one passage and no query is encoded, with a fresh run's weights."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.api import run_benchmark
from pipeline.config.files import load_config
from pipeline.storage.cache import cache_entries

pytestmark = pytest.mark.usefixtures("quick_conversion")

PASSAGES = 40
CONFIG = """
name: t
data: {source: beir, path: data}
model: {backend: native, output: sparse, name: splade, query_instruction: '', passage_instruction: ''}
search: {top_k: 10}
evaluate: {measures: [ndcg@10]}
"""


@pytest.fixture
def folder(root: Path, dl19: Path, tmp_path: Path) -> Path:
    """A config, with a slice of DL19: some judged passages of its first queries."""
    splade = root.parent / "shared" / "models" / "splade-tiny"
    if not splade.is_dir():
        pytest.skip("the model ../shared/models/splade-tiny is not on this machine")
    (tmp_path / "data" / "qrels").mkdir(parents=True)
    judged = list(csv.reader((dl19 / "qrels/test.tsv").open(encoding="utf-8"), delimiter="\t"))[
        : PASSAGES + 1
    ]
    queries, passages = ({row[column] for row in judged[1:]} for column in (0, 1))
    rows = "\n".join("\t".join(row) for row in judged)
    (tmp_path / "data" / "qrels" / "test.tsv").write_text(rows, encoding="utf-8")
    with gzip.open(dl19 / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        kept = [line for line in lines if json.loads(line)["_id"] in passages]
    (tmp_path / "data" / "corpus.jsonl").write_text("".join(kept), encoding="utf-8")
    lines = (dl19 / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["_id"] in queries]
    (tmp_path / "data" / "queries.jsonl").write_text("".join(kept), encoding="utf-8")
    (tmp_path / "splade").symlink_to(splade)
    (tmp_path / "c.yaml").write_text(CONFIG.replace("splade", "./splade"), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Callable[[str], tuple[dict[str, Any], dict[tuple[str, str], Any]]]:
    """Runs the config in a cache: its stages by name, and the checksums of the cache's artifacts."""

    def run(cache: str) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
        places = [f"cache={folder / cache}", f"output={folder / 'results'}"]
        result = run_benchmark(load_config(folder / "c.yaml", places))
        stages = {row.stage: row for row in result.record.stages}
        entries = cache_entries(folder / cache)
        return stages, {(kept.stage, kept.key): kept.manifest["files"] for kept in entries if kept.manifest}

    return run


def test_one_passage_is_encoded_and_no_query(
    folder: Path, run: Callable[[str], tuple[dict[str, Any], dict[tuple[str, str], Any]]]
) -> None:
    stages, _ = run("cache")
    count = stages["passages"].items
    assert stages["passages"].found == 0
    corpus = folder / "data" / "corpus.jsonl"
    text = corpus.read_text(encoding="utf-8")
    place = text.index("e", len(text) // 2)
    corpus.write_text(f"{text[:place]}a{text[place + 1 :]}", encoding="utf-8")
    stages, edited = run("cache")
    assert stages["passages"].found == count - 1
    assert stages["passages"].encoding.texts == 1
    assert stages["queries"].reused
    _, fresh = run("fresh")
    assert {key: edited.get(key) for key in fresh} == fresh
