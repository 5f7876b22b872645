"""Reranking: only new pairs are scored, also after a kill and on other collections; the order of hits."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from inside import resize

from pipeline import InputError, load_config, run_benchmark
from pipeline.core import Ranking, descending_id_rank
from pipeline.formats import read_run
from pipeline.results import section_tables
from pipeline.retrievers import ScoreStore, rerank
from pipeline.storage import Store
from pipeline.studies.cache import prune


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


def test_a_greater_depth_and_another_first_stage_score_new_pairs_alone(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    first = run(depth=10)
    assert (first.row.pairs.found, first.row.pairs.scored) == (0, len(first.scored))
    deeper = run(depth=20)
    assert deeper.row.pairs.found == first.row.items
    assert len(deeper.scored) == deeper.row.pairs.scored == deeper.row.items - first.row.items
    assert not {*deeper.scored} & {*first.scored}
    alone = run(f"cache={tmp_path}/other", depth=20)
    found, expected = (read_run(made.result.folder / "run.trec") for made in (deeper, alone))
    assert found.documents.to_pylist() == expected.documents.to_pylist()
    assert (found.scores == expected.scores).all()
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
    assert made.result.document["first_stage"] == {"metrics": {}, "change": {}}
    shown = section_tables({"run": made.result.record}, "")
    assert all(table.rows for tables in shown.values() for table in tables)


def test_a_killed_run_loses_the_part_that_was_being_scored(
    run: Callable[..., Any], reranking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, shard_pairs=100)
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


def test_a_damaged_part_is_scored_again(run: Callable[..., Any], tmp_path: Path) -> None:
    first = run()
    (path,) = (tmp_path / "indexes" / "scores").glob("*/scores.npy")
    path.write_bytes(path.read_bytes()[:-4] + np.float32(7).tobytes())
    again = run("search.top_k=150")
    assert again.row.pairs.found == 0
    assert again.scored == first.scored
    assert run("search.top_k=200").scored == []


def test_scores_are_of_one_scorer_and_pairs_agree_in_both_numbers_and_what_is_in_use_stays(
    tmp_path: Path,
) -> None:
    kept, pairs = ScoreStore(Store(tmp_path), {"model": "one"}), np.array([[1, 1], [1, 2]], np.uint64)
    kept.add(pairs[:1], np.array([5], np.float32), np.array([[9, 2]], np.int32))
    found = [ScoreStore(Store(tmp_path), {"model": name}).find(pairs) for name in ("one", "two")]
    np.testing.assert_array_equal([scores for scores, _ in found], [[5, np.nan], [np.nan, np.nan]])
    assert [tokens.tolist() for _, tokens in found] == [[[9, 2], [-1, -1]], [[-1, -1], [-1, -1]]]
    assert prune(tmp_path, [], unused=True, dry=False) == []
    del kept
    assert len(prune(tmp_path, [], unused=True, dry=False)) == 1


def test_equal_scores_are_in_the_order_of_ids() -> None:
    first = Ranking(np.arange(5)[None], -np.arange(5, dtype=np.float32)[None])
    rank = descending_id_rank(pa.chunked_array([["a", "b", "c", "d", "e"]]))
    assert rerank(first, np.zeros((1, 4), np.float32), rank).passages.tolist() == [[3, 2, 1, 0, 4]]


@pytest.mark.parametrize("scale", [0, 1, 1e8, 3e37])
def test_scores_below_the_depth_fall_strictly_from_the_lowest(scale: float) -> None:
    passages = np.arange(1000)[None]
    first = Ranking(passages, -passages.astype(np.float32))
    scores = np.float32(scale) * np.array([[-3, -1, -2]], np.float32)
    ranking = rerank(first, scores, np.arange(1000))
    assert (np.diff(ranking.scores[0, 2:]) < 0).all()
    assert np.isfinite(ranking.scores).all()
    assert ranking.passages[0, 3:].tolist() == list(range(3, 1000))
