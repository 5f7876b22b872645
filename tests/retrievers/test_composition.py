"""Retrievers made of others: their stages, what they share with benchmarks of their parts, their results."""

from __future__ import annotations

import json
from types import SimpleNamespace

from pipeline.formats.runs import read_run
from pipeline.results.comparison import compare
from pipeline.results.folder import read_result


def keys(made: SimpleNamespace) -> dict[str, str]:
    return {role: recipe.key for role, recipe in made.recipes.items()}


def test_a_part_shares_the_artifacts_of_a_benchmark_that_runs_it_alone(
    bm25: SimpleNamespace, fused: SimpleNamespace
) -> None:
    alone, together = keys(bm25), keys(fused)
    for stage in ("passages", "queries", "index", "search"):
        assert together[f"1/{stage}"] == alone[stage]
        assert together[f"2/{stage}"] != alone[stage]
    assert {"data", *(f"1/{stage}" for stage in alone)} - set(fused.result.reused) == {"1/data", "1/evaluate"}
    assert [row.stage for row in fused.result.record.all_stages] == list(together)


def test_results_have_the_stages_and_the_measures_of_parts(
    bm25: SimpleNamespace, fused: SimpleNamespace, fused_reranked: SimpleNamespace
) -> None:
    metrics = json.loads((fused_reranked.result.folder / "metrics.json").read_text(encoding="utf-8"))
    assert [row["stage"] for row in metrics["stages"]] == ["data", "fuse", "rerank", "evaluate"]
    assert metrics["first_stage"]["metrics"] == fused.result.record.metrics
    assert metrics["of"][0]["metrics"] == bm25.result.record.metrics
    for part in metrics["of"]:
        assert part["name"] == "bm25"
        assert [row["stage"] for row in part["stages"]] == ["passages", "queries", "index", "search"]
    assert read_result(fused_reranked.result.folder).record.of[0].stages[0].items == 345


def test_passages_below_the_depth_keep_their_order_beneath_the_reranked(
    bm25: SimpleNamespace, reranked: SimpleNamespace
) -> None:
    before, after = (read_run(made.result.folder / "run.trec") for made in (bm25, reranked))
    assert before.query_ids == after.query_ids
    moved = 0
    for query in range(len(before.query_ids)):
        first, second = (
            [name for name, row in zip(run.documents.to_pylist(), run.queries, strict=True) if row == query]
            for run in (before, after)
        )
        assert set(first[:20]) == set(second[:20])
        assert first[20:] == second[20:]
        moved += first != second
        scores = after.scores[after.queries == query]
        assert (scores[:-1] >= scores[1:]).all()
        assert (scores[20:-1] > scores[21:]).all()
    assert moved > 50


def test_each_pair_is_scored_once(reranked: SimpleNamespace) -> None:
    rows = {row.stage: row for row in reranked.result.record.stages}
    assert len(reranked.scored) == len(set(reranked.scored)) == rows["rerank"].items
    assert 114 * 15 < len(reranked.scored) <= 114 * 20


def test_a_reranked_result_is_compared_with_its_first_stage_and_with_a_fused_one(
    bm25: SimpleNamespace, reranked: SimpleNamespace, fused: SimpleNamespace
) -> None:
    compared = compare([made.result.folder for made in (bm25, reranked, fused)], "ndcg@10")
    assert [entry.name for entry in compared.results] == ["bm25", "reranked", "fused"]
    assert [entry.mean for entry in compared.results] == [
        made.result.record.metrics["ndcg@10"] for made in (bm25, reranked, fused)
    ]
    assert len(compared.pairs) == 3
    assert not compared.notes
