"""What unjudged documents could do to a measure: by hand, and against every way to grade them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.records import Qrels, Ranking
from pipeline.metrics import parse_measures
from pipeline.metrics.coverage import UnjudgedRange, unjudged_ranges
from pipeline.metrics.scoring import compute_measures

MEASURES = ",".join(
    f"{name}@{k}"
    for k in (1, 3, 5, 2**31 - 1)
    for name in (
        "precision(rel=2)", "recall", "recall(cap=true)", "mrr", "map", "map(norm=retrieved)", "map(rel=2)",
        "map(rel=4)", "success", "cg", "dcg(gain=exp)", "ndcg", "ndcg(gain=exp)", "ndcg(ideal=retrieved)",
        "rbp", "err",
    )
)  # fmt: skip


def row(documents: list[int]) -> Ranking:
    return Ranking(np.array([documents], dtype=np.int64), -np.arange(len(documents), dtype=np.float32)[None])


def qrels_of(grades: dict[int, int], query: int = 0) -> Qrels:
    entries = [(query, document, grade) for document, grade in sorted(grades.items())]
    return Qrels(*np.array(entries, dtype=np.int64).reshape(-1, 3).T)


def ranges(ranked: list[int], grades: dict[int, int], measures: str) -> dict[str, UnjudgedRange]:
    return unjudged_ranges(row(ranked), qrels_of(grades), 1, parse_measures(measures))


def test_by_hand() -> None:
    # ranks 1 to 4: relevant, unjudged, not relevant, unjudged; one more relevant document is elsewhere
    found = ranges([1, 8, 2, 9], {1: 1, 2: 0, 3: 1}, "precision@4,recall@2,map@4,mrr@4,judged@4,bpref")
    assert list(found) == ["precision@4", "recall@2", "map@4", "mrr@4"]  # of the others nothing can be said
    ends = {
        name: (each.judged.item(), each.lowest.item(), each.highest.item()) for name, each in found.items()
    }
    assert ends["precision@4"] == (0.5, 1 / 4, 3 / 4)
    assert ends["recall@2"] == (0.5, 1 / 2, 2 / 3)
    assert ends["mrr@4"] == (0.5, 1, 1)
    # 1 / 2 as it is; 2 / 3 and (1 + 1/2) / 3 with one more of R = 3; (1 + 1 + 3/4) / 4 with both
    assert ends["map@4"] == (0.5, pytest.approx((1 + 2 / 4) / 3), pytest.approx((1 + 1 + 3 / 4) / 4))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([None, None, -1, 0, 1, 1, 3]), max_size=5),
    st.lists(st.sampled_from([0, 1, 1, 2, 3]), min_size=1, max_size=5),
)
def test_the_ends_are_those_of_all_ways_to_grade(in_ranking: list[int | None], elsewhere: list[int]) -> None:
    """One query: ranks with their grade, None where nobody judged; other documents that are judged."""
    ranked = list(range(len(in_ranking)))
    grades = {document: grade for document, grade in enumerate(in_ranking) if grade is not None}
    grades |= {100 + number: grade for number, grade in enumerate(elsewhere)}
    measures = parse_measures(MEASURES)
    found = unjudged_ranges(row(ranked), qrels_of(grades), 1, measures)
    assert list(found) == [str(measure) for measure in measures]
    scale = sorted({0, max(1, *grades.values())} | {grade for grade in grades.values() if grade > 0})
    for k in (1, 3, 5):
        free = [d for d in ranked[:k] if grades.get(d, -1) < 0]
        ways = [grades | dict(zip(free, way, strict=True)) for way in product(scale, repeat=len(free))]
        at_k = [
            measure for measure in measures if measure.cutoff == k or (k == 5 and (measure.cutoff or 0) > 5)
        ]
        everything = [compute_measures(row(ranked), qrels_of(way), 1, at_k)[0] for way in ways]
        for measure, lowest, highest in zip(at_k, np.min(everything, 0), np.max(everything, 0), strict=True):
            each = found[str(measure)]
            assert each.lowest.item() == pytest.approx(lowest, abs=1e-12), measure
            assert each.highest.item() == pytest.approx(highest, abs=1e-12), measure


def test_queries_do_not_touch_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    passages = np.argsort(random.random((7, 40)), axis=1)[:, :9]
    passages[3, 4:] = -1
    ranking = Ranking(passages, np.zeros(passages.shape, np.float32))
    entries = sorted(
        (q, d, int(random.integers(-1, 4))) for q in range(7) for d in random.permutation(40)[:12]
    )
    qrels = Qrels(*np.array(entries).T)
    together = unjudged_ranges(ranking, qrels, 7, parse_measures(MEASURES))
    monkeypatch.setattr("pipeline.metrics.coverage.BLOCK_CELLS", 18)
    for name, each in unjudged_ranges(ranking, qrels, 7, parse_measures(MEASURES)).items():
        for side in ("judged", "lowest", "highest"):
            assert np.array_equal(getattr(each, side), getattr(together[name], side)), name
        assert np.all(each.lowest <= each.highest)
