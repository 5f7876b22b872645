"""Ranges over orders of tied documents, against all orders of small rankings and trec_eval on real runs."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.core.json_record import Ties
from pipeline.core.records import Float64, Qrels, Ranking
from pipeline.metrics import parse_measures
from pipeline.metrics.evaluation import evaluate_files
from pipeline.metrics.measures import MEASURES
from pipeline.metrics.names import Measure
from pipeline.metrics.scoring import compute_measures
from pipeline.metrics.ties import EXPECTED, tie_ranges

NAMES = (
    "precision@1,precision@3,recall@2,recall(cap=true)@2,mrr,mrr@2,map,map@3,success@2,r_precision,judged@2,bpref,"
    "cg@2,dcg@3,dcg(gain=exp)@2,ndcg@2,ndcg@10,ndcg(ideal=retrieved)@3,rbp,rbp(p=0.5,rel=2)@3,err@3,err@10,"
    "map(rel=2)@4,mrr(rel=2)@3,bpref(rel=2),success(rel=2)@1,ndcg(unjudged=removed)@2,map(unjudged=removed)@2"
)
MEASURES_HERE = parse_measures(NAMES)


def ranges_of(rankings: list[Ranking], qrels: Qrels, measures: list[Measure]) -> Ties | None:
    passages, scores = ([getattr(each, name) for each in rankings] for name in ("passages", "scores"))
    ranking = Ranking(np.concatenate(passages), np.concatenate(scores))
    n_queries = len(rankings)
    values = compute_measures(ranking, qrels, n_queries, measures)
    return tie_ranges(ranking, qrels, n_queries, measures, values, np.arange(n_queries))


def all_orders(ranking: Ranking, qrels: Qrels) -> Float64:
    """float64 [orders, measures]: the values of one query in every order that its scores allow."""
    (passages,), (scores,) = ranking.passages, ranking.scores
    orders = (list(order) for order in itertools.permutations(range(len(scores))))
    allowed = np.array([order for order in orders if (scores[order] == scores).all()])
    many, n = Ranking(passages[allowed], scores[allowed]), len(allowed)
    copies = np.repeat(np.arange(n), len(qrels.grades))
    judged = Qrels(copies, np.tile(qrels.passages, n), np.tile(qrels.grades, n))
    return compute_measures(many, judged, n, MEASURES_HERE)


@pytest.mark.parametrize("seed", range(10))
def test_ranges_are_those_of_all_orders(seed: int) -> None:
    rng, rankings, judgments, orders = np.random.default_rng(seed), [], [], []
    for query in range(3):
        k = int(rng.integers(2, 8))
        passages, scores = rng.permutation(9)[None, :k], np.sort(rng.integers(0, 4, (1, k)))[:, ::-1]
        ranking = Ranking(passages, scores.astype(np.float32))
        judged = np.sort(rng.permutation(9)[: rng.integers(1, 8)])
        grades = rng.integers(-1, 4, len(judged))
        orders.append(all_orders(ranking, Qrels(np.zeros(len(judged), np.int64), judged, grades)))
        judgments.append(Qrels(np.full(len(judged), query), judged, grades))
        padded = np.pad(passages, [(0, 0), (0, 9 - k)], constant_values=-1)
        rankings.append(
            Ranking(padded, np.pad(ranking.scores, [(0, 0), (0, 9 - k)], constant_values=-np.inf))
        )
    parts = ([getattr(each, name) for each in judgments] for name in ("queries", "passages", "grades"))
    qrels = Qrels(*map(np.concatenate, parts))
    found = ranges_of(rankings, qrels, MEASURES_HERE)
    assert found.queries == sum(len(each) > 1 for each in orders)
    expected = [
        np.mean([reduce(each, axis=0) for each in orders], axis=0) for reduce in (np.min, np.mean, np.max)
    ]
    for column, measure in enumerate(MEASURES_HERE):
        got = found.measures[str(measure)]
        assert [got.lowest, got.expected, got.highest] == pytest.approx(
            [each[column] for each in expected], abs=1e-12
        )


def test_every_measure_has_a_range_but_two() -> None:
    assert MEASURES.keys() - EXPECTED.keys() == {"infap"}
    ranking = Ranking(np.array([[1, 2]]), np.array([[1.0, 1.0]], np.float32))
    found = ranges_of(
        [ranking], Qrels(*np.array([[0], [1], [1]])), parse_measures("map(norm=retrieved)@2,infap,map")
    )
    assert list(found.measures) == ["map"]


def test_a_tie_of_a_thousand_documents_is_counted_exactly() -> None:
    ranking = Ranking(np.arange(1000)[None], np.zeros((1, 1000), np.float32))
    found = ranges_of([ranking], Qrels(*np.array([[0], [7], [1]])), parse_measures("mrr@10,mrr,precision@10"))
    ranks = 1 / np.arange(1, 1001)
    expected = [ranks[:10].sum() / 1000, ranks.mean(), 1 / 1000]
    assert [each.expected for each in found.measures.values()] == pytest.approx(expected, rel=1e-9)
    assert [each.lowest for each in found.measures.values()] == pytest.approx([0, 1 / 1000, 0])
    assert [each.highest for each in found.measures.values()] == [1, 1, 0.1]


def test_real_ties_span_what_trec_eval_gives_for_their_orders(dl19: Path, tmp_path: Path) -> None:
    """A run in bf16: with its ties in the best or the worst order, trec_eval scores it at the ends."""
    run, qrels = dl19 / "runs" / "rep_llama.trec.gz", dl19 / "qrels" / "full.trec"
    names = {"map": "map", "ndcg@10": "ndcg_cut_10", "mrr": "recip_rank", "recall@20": "recall_20"}
    found = evaluate_files(qrels, run, parse_measures(",".join(names)))
    judged: dict[str, dict[str, int]] = {}
    for query, _, document, grade in map(str.split, qrels.read_text().splitlines()):
        judged.setdefault(query, {})[document] = int(grade)
    hits = [line.split() for line in gzip.decompress(run.read_bytes()).decode().splitlines()]
    for end, sign in (("lowest", -1), ("highest", 1)):
        order = sorted(hits, key=lambda hit: (hit[0], float(hit[4]), sign * judged[hit[0]].get(hit[2], -1)))
        ranked: dict[str, dict[str, float]] = {}
        for place, hit in enumerate(order):
            ranked.setdefault(hit[0], {})[hit[2]] = float(place)
        theirs = pytrec_eval.RelevanceEvaluator(judged, {*names.values()}).evaluate(ranked)
        for name, peer in names.items():
            mean = np.mean([each[peer] for each in theirs.values()])
            assert getattr(found.ties.measures[name], end) == pytest.approx(mean, abs=1e-12)
            here = found.ties.measures[name]
            assert here.lowest <= found.mean_by_measure[name] <= here.highest
            assert here.lowest <= here.expected <= here.highest
    assert found.ties.measures["ndcg@10"].highest - found.ties.measures["ndcg@10"].lowest > 0.016


def test_a_range_is_shown_only_where_ties_change_a_measure(tmp_path: Path) -> None:
    qrels, run = tmp_path / "qrels", tmp_path / "run"
    qrels.write_text("q1 0 d1 1\n")
    arguments = ["evaluate", "--qrels", str(qrels), "--run", str(run), "--measures", "mrr,recall@2"]
    shown, documents = [], []
    for first in (1, 2):  # a score; the other document's is 1
        run.write_text(f"q1 Q0 d1 1 {first} t\nq1 Q0 d2 2 1 t\n")
        shown.append(CliRunner().invoke(app, arguments).stdout)
        documents.append(json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["ties"])
    assert documents[0] == {
        "queries": 1,
        "measures": {
            "mrr": {"lowest": 0.5, "expected": 0.75, "highest": 1.0},
            "recall@2": {"lowest": 1.0, "expected": 1.0, "highest": 1.0},
        },
    }
    assert documents[1] is None
    assert "0.5000 to 1.0000" in shown[0]
    assert "1.0000 to 1.0000" not in shown[0]
    assert "any order" not in shown[1]
