"""Retrievers made of others: their stages, what they share with benchmarks of their parts, their results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import api
from pipeline.api import run_benchmark
from pipeline.cli import app
from pipeline.comparison.side_by_side import compare
from pipeline.core.table import Table
from pipeline.engines import LocalEngine
from pipeline.formats.runs import read_run
from pipeline.report.page.render import render_page
from pipeline.results.folder import read_result
from pipeline.results.tables import section_tables
from pipeline.retrievers.bm25 import Bm25
from pipeline.retrievers.reranked import Reranked

FUSE = "fuse={of: [{model: {backend: bm25}}, {model: {backend: bm25, stemmer: null, b: 0.9}}]}"


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
    assert read_result(fused_reranked.result.folder).record.of.parts[0].stages[0].items == 345


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
    counts = rows["rerank"].pairs
    assert counts.found + counts.scored == rows["rerank"].items
    assert len(reranked.scored) == len(set(reranked.scored)) == counts.scored > 0
    assert 114 * 15 < rows["rerank"].items <= 114 * 20


def test_a_reranked_result_is_compared_with_its_first_stage_and_with_a_fused_one(
    bm25: SimpleNamespace, reranked: SimpleNamespace, fused: SimpleNamespace
) -> None:
    compared = compare([made.result.folder for made in (bm25, reranked, fused)], "ndcg@10")
    assert [entry.name for entry in compared.results] == ["bm25", "reranked", "fused"]
    assert [entry.mean for entry in compared.results] == [
        made.result.record.metrics["ndcg@10"] for made in (bm25, reranked, fused)
    ]
    assert len(compared.pairs) == 3
    assert sum("fewer than 100 passages" in note for note in compared.notes) == 1  # they share it


def test_tuned_weights_are_in_the_result(
    composed: Callable[..., SimpleNamespace], fused: SimpleNamespace
) -> None:
    assert fused.result.metrics["fusion"] == {"method": "rrf", "normalize": None, "weights": [1.0, 1.0]}
    settings = ("fuse.method=weighted", "fuse.tune=ndcg@10", "fuse.folds=3")
    tuned = composed("tuned", "model=null", FUSE, *settings).result
    assert set(tuned.reused) >= {"1/search", "2/search"}
    found = tuned.metrics["fusion"]["tuned"]
    assert found["measure"] == "ndcg@10"
    assert [fold["queries"] for fold in found["folds"]] == [38, 38, 38]
    assert all(abs(sum(fold["weights"]) - 1) < 1e-9 for fold in found["folds"])


def test_fused_run_files_have_the_order_of_the_fused_benchmark(
    composed: Callable[..., SimpleNamespace], bm25: SimpleNamespace, fused: SimpleNamespace, tmp_path: Path
) -> None:
    second = composed("second", "model={backend: bm25, stemmer: null, b: 0.9}").result
    paths = [result.folder / "run.trec" for result in (bm25.result, second)]
    facts = api.fuse(paths, tmp_path / "fused.trec", depth=100)
    assert (facts["queries"], facts["queries_not_in_all"]) == (114, 0)
    assert (tmp_path / "fused.trec").read_bytes() == (fused.result.folder / "run.trec").read_bytes()


def test_a_query_that_a_run_lacks_counts_and_a_tuned_fusion_knows_judged_documents_only(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_text("q1 Q0 x 1 2 t\nq1 Q0 y 2 1 t\nq2 Q0 x 1 1 t\n", encoding="utf-8")
    (tmp_path / "b").write_text("q1 Q0 y 1 2 t\nq1 Q0 x 2 1 t\nq3 Q0 z 1 1 t\n", encoding="utf-8")
    (tmp_path / "qrels").write_text("q1 0 y 1\nq2 0 never 1\n", encoding="utf-8")
    paths = [tmp_path / "a", tmp_path / "b"]
    facts = api.fuse(paths, tmp_path / "o", method="weighted", tune="mrr", qrels=tmp_path / "qrels", folds=2)
    assert (facts["queries"], facts["queries_not_in_all"], facts["documents"]) == (3, 2, 3)
    # q1 alone could choose, and has not seen its own weights: they are the equal ones, a tie, y before x
    assert facts["tuned"]["folds"] == [
        {"queries": 2, "weights": [0.5, 0.5]},
        {"queries": 1, "weights": [0.5, 0.5]},
    ]
    assert [line.split()[:4] for line in (tmp_path / "o").read_text().splitlines()] == [
        ["q1", "Q0", "y", "1"], ["q1", "Q0", "x", "2"], ["q2", "Q0", "x", "1"], ["q3", "Q0", "z", "1"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "one ranking: name two or more"),
        (["a", "b", "--method", "comb"], "method 'comb'. Allowed: rrf, combsum, combmnz, weighted"),
        (["a", "b", "--method", "weighted"], "weighted needs weights: give 2"),
        (["a", "b", "--weights", "1"], "rrf of 2 rankings takes 2 weights, and 1 are given"),
        (["a", "b", "--weights", "1,x"], "numbers separated by commas"),
        (["a", "b", "--normalize", "rank"], "rrf joins ranks, and normalize is for scores"),
        (["a", "b", "c", "--method", "interpolation"], "interpolation joins two rankings, not 3"),
        (["a", "b", "--tune", "mrr"], "tune without qrels"),
    ],
)
def test_a_mistake_is_one_message_and_nothing_is_written(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["fuse", *arguments, "--output", str(tmp_path / "o")])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_reranked_result_says_what_the_reranker_brings(
    bm25: SimpleNamespace, reranked: SimpleNamespace
) -> None:
    record = read_result(reranked.result.folder).record
    assert record.first_stage is not None
    assert record.reranking is not None
    assert record.first_stage.metrics == bm25.result.record.metrics
    pair = compare([made.result.folder for made in (reranked, bm25)], "ndcg@10").pairs[0]
    change = record.first_stage.change["ndcg@10"]
    assert (change.difference, change.p_ttest) == pytest.approx((pair.difference, pair.p_ttest))
    assert (change.wins, change.ties, change.losses) == (pair.wins, pair.ties, pair.losses)
    assert [at.depth for at in record.reranking.by_depth] == [10, 20]
    assert record.reranking.by_depth[-1].metrics == record.metrics
    for name, mean in record.metrics.items():
        assert mean <= record.reranking.ceiling[name] + 1e-12
        assert record.first_stage.metrics[name] <= record.reranking.ceiling[name] + 1e-12
    assert record.reranking.pairs == record.stage("rerank").items >= len(reranked.scored)
    assert record.reranking.pairs_per_second is not None
    assert record.reranking.seconds_per_query is not None
    per_query = record.reranking.pairs / record.queries / record.reranking.pairs_per_second
    assert record.reranking.seconds_per_query == per_query


def composition_tables(result: Any) -> list[Table]:
    measure = next(iter(result.record.metrics))
    return section_tables({result.record.name: result.record}, measure)["Made of other rankings"]


def test_the_page_and_the_terminal_show_it(reranked: SimpleNamespace, fused: SimpleNamespace) -> None:
    before, depths = composition_tables(reranked.result)
    assert [column.name for column in before.columns][-1] == "ceiling"
    assert [row[0] for row in depths.rows] == ["0", "10", "20"]
    (parts,) = composition_tables(fused.result)
    assert [row[0] for row in parts.rows] == ["1: bm25", "2: bm25", "joined"]
    assert parts.notes == ["Joined by rrf; weights 1, 1."]
    page = render_page(compare([reranked.result.folder, fused.result.folder]))
    for table in (before, depths, parts):
        assert f"<b>{table.title}.</b>" in page


def test_queries_per_second_include_the_reranking(bm25: SimpleNamespace, reranked: SimpleNamespace) -> None:
    alone, both = compare([made.result.folder for made in (bm25, reranked)]).results
    found = reranked.result.record.reranking
    assert alone.queries_per_second is not None
    assert both.queries_per_second == pytest.approx(
        1 / (1 / alone.queries_per_second + found.seconds_per_query)
    )


def test_one_engine_is_open_at_a_time(
    composed: Callable[..., SimpleNamespace], fused_reranked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part may have a model of its own, and a GPU holds one."""
    events: list[tuple[str, int]] = []

    class Noted(LocalEngine):
        def __init__(self, number: int, open_model: Callable[[], Any] | None) -> None:
            super().__init__(open_model)
            self.number = number
            events.append(("open", number))

        def close(self) -> None:
            super().close()
            events.append(("close", self.number))

    def noted(opens: Callable[..., LocalEngine]) -> Callable[..., LocalEngine]:
        return lambda *given: Noted(len(events), opens(*given)._open_model)

    for kind in (Bm25, Reranked):
        monkeypatch.setattr(kind, "open_engine", noted(kind.open_engine))
    again = run_benchmark(fused_reranked.config, fresh=True)
    assert again.reused == []
    assert again.record.metrics == fused_reranked.result.record.metrics
    assert events == [("open", 0), ("close", 0), ("open", 2), ("close", 2)]
    events.clear()
    assert run_benchmark(fused_reranked.config).reused == list(fused_reranked.recipes)
    assert events == []
