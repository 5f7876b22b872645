"""Retrievers made of others: their stages, what they share with benchmarks of their parts, their results."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import workplaces
from workplaces import read_json

from pipeline import compare, evaluate, run_benchmark
from pipeline.core import Table
from pipeline.engines import Engine, EngineFactory
from pipeline.results import read_result, section_tables
from pipeline.storage import Store
from pipeline.studies.fuse import fuse
from pipeline.studies.page import render_page


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


def test_a_setting_of_bm25_makes_the_index_again_and_measures_are_those_of_its_peers(
    bm25: SimpleNamespace, composed: Callable[..., SimpleNamespace]
) -> None:
    """Those of pytrec_eval on the runs of bm25s."""
    other = composed("model.k1=1.5", "model.b=0.75").result
    assert other.reused == ["data", "passages", "queries"]
    for result, mean in ((bm25.result, 0.6453), (other, 0.6375)):
        assert result.record.metrics["ndcg@10"] == pytest.approx(mean, abs=5e-5)


def test_results_have_the_stages_and_the_measures_of_parts(
    bm25: SimpleNamespace, fused: SimpleNamespace, fused_reranked: SimpleNamespace
) -> None:
    metrics = read_json(fused_reranked.result.folder / "metrics.json")
    assert [row["stage"] for row in metrics["stages"]] == ["data", "fuse", "rerank", "evaluate"]
    assert metrics["first_stage"]["metrics"] == fused.result.record.metrics
    assert metrics["of"][0]["metrics"] == bm25.result.record.metrics
    for part in metrics["of"]:
        assert part["name"] == "bm25"
        assert [row["stage"] for row in part["stages"]] == ["passages", "queries", "index", "search"]
    assert read_result(fused_reranked.result.folder).record.of.parts[0].stages[0].items == 345


def hits(made: SimpleNamespace) -> dict[str, dict[str, float]]:
    """By query the passages in their order, with their scores."""
    found: dict[str, dict[str, float]] = {}
    for query, passage, score in workplaces.hits(made.result.folder):
        found.setdefault(query, {})[passage] = score
    return found


def test_passages_below_the_depth_keep_their_order_beneath_the_reranked(
    bm25: SimpleNamespace, reranked: SimpleNamespace
) -> None:
    before, after = hits(bm25), hits(reranked)
    assert before.keys() == after.keys()
    for query, ranked in after.items():
        first, second, scores = list(before[query]), list(ranked), np.array([*ranked.values()])
        assert set(first[:20]) == set(second[:20])
        assert first[20:] == second[20:]
        assert (scores[:-1] >= scores[1:]).all()
        assert (scores[20:-1] > scores[21:]).all()
    assert sum(list(before[query]) != list(after[query]) for query in before) > 50


def test_the_ceiling_is_that_of_the_grades_and_a_lesser_depth_is_as_if_it_were_set(
    composed: Callable[..., SimpleNamespace], bm25: SimpleNamespace, reranked: SimpleNamespace, root: Path
) -> None:
    qrels, ideal = root / "pipeline/data/sample/qrels/test.tsv", hits(bm25)
    lines = [line.split() for line in qrels.read_text(encoding="utf-8").splitlines()[1:]]
    grades = {(query, passage): int(grade) for query, passage, grade in lines}
    for query, ranked in ideal.items():
        top = {passage: 1000 + grades.get((query, passage), 0) for passage in list(ranked)[:20]}
        ranked.update((passage, score) for passage, score in top.items() if score > 1000)
    found = reranked.record.reranking
    best = evaluate(qrels, ideal, list(found.ceiling))
    assert best.means.tolist() == pytest.approx(list(found.ceiling.values()))
    lesser = composed(f"rerank={{backend: shared-words, name: {reranked.config.rerank.name}, depth: 10}}")
    assert found.by_depth[0].metrics == lesser.record.metrics


def test_the_method_and_its_weights_are_in_the_result(fused: SimpleNamespace) -> None:
    assert fused.result.document["fusion"] == {"method": "rrf", "normalize": None, "weights": [1.0, 1.0]}


def test_fused_run_files_have_the_order_of_the_fused_benchmark(
    composed: Callable[..., SimpleNamespace], bm25: SimpleNamespace, fused: SimpleNamespace, tmp_path: Path
) -> None:
    second = composed("model={backend: bm25, stemmer: null, b: 0.9}").result
    paths = [result.folder / "run.trec" for result in (bm25.result, second)]
    facts = fuse(paths, tmp_path / "fused.trec", depth=100)
    assert (facts["queries"], facts["queries_not_in_all"]) == (114, 0)
    assert (tmp_path / "fused.trec").read_bytes() == (fused.result.folder / "run.trec").read_bytes()


def test_a_result_says_and_a_comparison_shows_what_the_reranker_brings(
    bm25: SimpleNamespace, reranked: SimpleNamespace, fused: SimpleNamespace
) -> None:
    folders = [made.result.folder for made in (reranked, bm25, fused)]
    compared = compare(folders, "ndcg@10", baseline=folders[1])
    both, alone, _ = compared.results
    record = read_result(reranked.result.folder).record
    first, found = record.first_stage, record.reranking
    assert (both.mean, alone.mean) == (record.metrics["ndcg@10"], first.metrics["ndcg@10"])
    assert first.metrics == bm25.result.record.metrics
    change, pair = first.change["ndcg@10"], compared.pairs[0]
    assert (change.difference, change.p_ttest) == pytest.approx((pair.difference, pair.p_ttest))
    ends = change.ci_low, change.ci_high, change.fragile
    assert ends == pytest.approx((pair.ci_low, pair.ci_high, pair.fragile))
    assert (change.wins, change.ties, change.losses) == (pair.wins, pair.ties, pair.losses)
    assert [at.depth for at in found.by_depth] == [10, 20]
    assert found.by_depth[-1].metrics == record.metrics
    for name, ceiling in found.ceiling.items():
        assert max(record.metrics[name], first.metrics[name]) <= ceiling + 1e-12
    row = record.stage("rerank")
    assert 114 * 15 < found.pairs == row.items == row.pairs.found + row.pairs.scored <= 114 * 20
    assert len(reranked.scored) == len(set(reranked.scored)) == row.pairs.scored > 0
    assert found.seconds_per_query == found.pairs / record.queries / found.pairs_per_second
    seconds = 1 / alone.queries_per_second + found.seconds_per_query
    assert both.queries_per_second == pytest.approx(1 / seconds)


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


def test_one_engine_is_open_at_a_time(
    fused_reranked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part may have a model of its own, and a GPU holds one."""
    events: list[str] = []
    opens = EngineFactory.__call__

    def noted(factory: EngineFactory, store: Store) -> Engine:
        engine = opens(factory, store)
        close = engine.close
        events.append("open")
        monkeypatch.setattr(engine, "close", lambda: (events.append("close"), close()))
        return engine

    monkeypatch.setattr(EngineFactory, "__call__", noted)
    again = run_benchmark(fused_reranked.config, fresh=True)
    assert again.reused == []
    assert again.record.metrics == fused_reranked.record.metrics
    assert events == ["open", "close"] * 2
    assert run_benchmark(fused_reranked.config).reused == list(fused_reranked.recipes)
    assert len(events) == 4
