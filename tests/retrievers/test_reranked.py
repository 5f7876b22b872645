"""Reranking with a cache of scores: only new pairs are scored, also after a kill and on other collections."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.api import run_benchmark
from pipeline.config.files import load_config
from pipeline.core.errors import InputError
from pipeline.formats.runs import read_run
from pipeline.results.tables import section_tables
from pipeline.retrievers import pair_scores


@pytest.fixture
def run(tmp_path: Path, reranking: Any, minilm_folder: Path) -> Iterator[Callable[..., SimpleNamespace]]:
    """Runs BM25 with a reranker and other settings; gives the result and the pairs that were scored."""
    path = tmp_path / "c.yaml"
    path.write_text(reranking.BASE, encoding="utf-8")

    def run(*settings: str, depth: int = 10) -> SimpleNamespace:
        given = [f"cache={tmp_path}/indexes", f"output={tmp_path}/results", f"name=run{len(results)}"]
        rerank = f"rerank={{backend: shared-words, name: {minilm_folder}, depth: {depth}}}"
        config = load_config(path, [*given, rerank, *settings])
        reranking.SharedWords.scored.clear()
        result = run_benchmark(config)
        results.append(result)
        row = next(row for row in result.record.stages if row.stage == "rerank")
        return SimpleNamespace(result=result, row=row, scored=list(reranking.SharedWords.scored))

    results: list[Any] = []
    with reranking.registered():
        yield run


def test_a_greater_depth_and_another_first_stage_score_new_pairs_alone(run: Callable[..., Any]) -> None:
    first = run(depth=10)
    assert (first.row.pairs.found, first.row.pairs.scored) == (0, len(first.scored))
    deeper = run(depth=20)
    assert deeper.row.pairs.found == first.row.items
    assert len(deeper.scored) == deeper.row.pairs.scored == deeper.row.items - first.row.items
    assert not {*deeper.scored} & {*first.scored}
    assert run(depth=15).scored == []
    other = run("model.b=0.9", depth=20)
    known = {*first.scored, *deeper.scored}
    assert {*other.scored}.isdisjoint(known)
    assert 0 < other.row.pairs.scored == len(other.scored) < other.row.items / 5
    smaller = run("data.queries=20", "data.corpus=300", "model.b=0.9", depth=10)
    assert len(smaller.scored) < smaller.row.items / 2


def test_a_collection_without_judgments_is_reranked_and_not_scored(
    run: Callable[..., Any], root: Path, tmp_path: Path
) -> None:
    sample = root / "pipeline" / "data" / "sample"
    shutil.copytree(sample, tmp_path / "mine", ignore=shutil.ignore_patterns("qrels"))
    made = run(f"data={{source: beir, path: {tmp_path}/mine, unjudged_queries: keep, queries: 5}}")
    assert len(made.scored) == made.row.items > 0
    assert made.result.metrics["first_stage"] == {"metrics": {}, "change": {}}
    shown = section_tables({"run": made.result.record}, "")
    assert all(table.rows for tables in shown.values() for table in tables)


def test_scores_from_the_cache_make_the_same_ranking(run: Callable[..., Any], tmp_path: Path) -> None:
    run(depth=10)
    deeper = read_run(run(depth=20).result.folder / "run.trec")
    alone = read_run(run(f"cache={tmp_path}/other", depth=20).result.folder / "run.trec")
    assert deeper.documents.to_pylist() == alone.documents.to_pylist()
    assert (deeper.scores == alone.scores).all()


def test_a_killed_run_loses_the_part_that_was_being_scored(
    run: Callable[..., Any], reranking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_scores, "SHARD_PAIRS", 100)
    score, calls = reranking.SharedWords.score, []

    def killed(self: Any, pairs: Any, usage: Any, bar: Any) -> Any:
        calls.append(len(pairs))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return score(self, pairs, usage, bar)

    monkeypatch.setattr(reranking.SharedWords, "score", killed)
    with pytest.raises(KeyboardInterrupt):
        run()
    resumed = run()
    assert resumed.row.pairs.found == 300
    assert resumed.row.pairs.scored == resumed.row.items - 300


def test_scores_that_are_no_numbers_are_refused_and_not_kept(
    run: Callable[..., Any], reranking: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(self: Any, pairs: Any, usage: Any, bar: Any) -> Any:
        return np.full(len(pairs), np.nan, np.float32)

    monkeypatch.setattr(reranking.SharedWords, "score", broken)
    with pytest.raises(InputError, match=r"scores are NaN or infinite\. .*rerank\.precision"):
        run()
    assert not list((tmp_path / "indexes" / "scores").glob("*/manifest.json"))
