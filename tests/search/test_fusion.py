"""Fusion of rankings: ties and missing passages by hand.

`tests/parity/test_fusion_parity.py` has every method and normalization.
"""

import math
import resource
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from inside import resize

from pipeline import InputError, run_benchmark
from pipeline.core import Ranking, descending_id_rank
from pipeline.search import NORMALIZATIONS, Fusion, fuse
from pipeline.studies.fuse import fuse as fuse_runs

IDS = pa.chunked_array([["a", "b", "c", "d"]])
ID_RANK = descending_id_rank(IDS)
A, B, C, D = range(4)


def ranking(*rows: dict[int, float]) -> Ranking:
    """A ranking of the scores of each query, in the order given."""
    width = max(map(len, rows))
    passages, scores = np.full((len(rows), width), -1), np.full((len(rows), width), -np.inf, np.float32)
    for number, row in enumerate(rows):
        passages[number, : len(row)], scores[number, : len(row)] = list(row), list(row.values())
    return Ranking(passages, scores)


def fused(*rankings: Ranking, weights: list[float] | None = None, **options: Any) -> list[dict[int, float]]:
    method = Fusion(**options)
    joined = fuse(rankings, method, method.weights(weights, len(rankings)), ID_RANK)
    return [
        {int(one): float(score) for one, score in zip(*row, strict=True) if one >= 0}
        for row in zip(joined.passages, joined.scores, strict=True)
    ]


FIRST = ranking({A: 9, B: 5, C: 1})
SECOND = ranking({C: 0.5, D: 0.25})


@pytest.mark.parametrize(
    ("options", "weights", "expected"),
    [
        ({"method": "rrf", "k": 1}, [1, 3], {C: 1 / 4 + 3 / 2, D: 3 / 3, A: 1 / 2, B: 1 / 3}),
        ({"method": "combsum"}, None, {C: 1, A: 1, B: 0.5, D: 0}),
        ({"method": "combmnz", "normalize": "none"}, None, {A: 9, B: 5, C: 3, D: 0.25}),
        ({"method": "weighted"}, [0.25, 0.75], {C: 0.75, A: 0.25, B: 0.125, D: 0}),
        ({"method": "interpolation"}, [0.25], {A: 2.25, B: 1.25, C: 0.25 + 0.375, D: 0.1875}),
    ],
)
def test_a_method_by_hand(
    options: dict[str, Any], weights: list[float] | None, expected: dict[int, float]
) -> None:
    (found,) = fused(FIRST, SECOND, weights=weights, **options)
    ordered = sorted(expected, key=lambda one: (round(expected[one], 12), one), reverse=True)
    assert list(found) == ordered  # of equal scores the higher id first
    assert found == pytest.approx(expected, abs=1e-12)


def test_equal_scores_a_single_hit_and_no_hit_divide_by_no_zero() -> None:
    alike = ranking({A: 2, B: 2}, {C: 7}, {})
    for norm in NORMALIZATIONS:
        found = fused(alike, ranking({B: 1}, {}, {}), method="combsum", normalize=norm)
        assert [set(row) for row in found] == [{A, B}, {C}, set()]
        assert all(math.isfinite(score) for row in found for score in row.values())


def test_an_infinite_score_is_refused_by_all_but_ranks() -> None:
    endless = ranking({A: math.inf, B: 1})
    assert list(fused(endless, SECOND, method="rrf")[0]) == [C, A, D, B]
    with pytest.raises(InputError, match="infinite"):
        fused(endless, SECOND, method="combsum")


SCORES = st.dictionaries(st.integers(0, 3), st.integers(-4, 8).map(float), min_size=1, max_size=4)


def by_definition(method: str, normalize: str, rows: list[dict[int, float]]) -> dict[int, float]:
    """The slow definition: of each ranking a value for each hit and 0 for any other passage."""
    total, found = defaultdict[int, float](float), defaultdict[int, int](int)
    for weight, row in zip((0.75, 0.25), rows, strict=True):
        low, high, mean = min(row.values()), max(row.values()), statistics.mean(row.values())
        above, deviation = sum(row.values()) - low * len(row), statistics.pstdev(row.values())
        for rank, (passage, score) in enumerate(row.items()):
            value = {
                "none": score,
                "max": score / max(high, 1e-9),
                "min_max": (score - low) / max(high - low, 1e-9),
                "sum": (score - low) / max(above, 1e-9),
                "z_score": (score - mean) / max(deviation, 1e-9),
                "rank": 1 - rank / len(row),
            }[normalize]
            total[passage] += value * (weight if method in ("weighted", "interpolation") else 1)
            found[passage] += 1
    return {each: value * (found[each] if method == "combmnz" else 1) for each, value in total.items()}


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("method", ["combsum", "combmnz", "weighted", "interpolation"])
@given(st.tuples(SCORES, SCORES))
def test_a_passage_that_a_ranking_lacks_has_0_and_no_hit_less(
    method: str, normalize: str, rows: tuple[dict[int, float], dict[int, float]]
) -> None:
    """Of {a 5, b 4} and {a -10, c -20}, b was first, as the ranking of negative scores lacks it."""
    ordered = [dict(sorted(row.items(), key=lambda hit: (-hit[1], -hit[0]))) for row in rows]
    given = {"weighted": [0.75, 0.25], "interpolation": [0.75]}.get(method)
    rankings, options = [*map(ranking, ordered)], {"method": method, "normalize": normalize}
    if normalize in ("none", "max") and min(min(row.values()) for row in rows) < 0:
        with pytest.raises(
            InputError, match=rf"normalize: {normalize}, and a score is -.*scores of 0 or more"
        ):
            fused(*rankings, weights=given, **options)
        return
    (found,) = fused(*rankings, weights=given, **options)
    assert found == pytest.approx(by_definition(method, normalize, ordered), abs=1e-9)
    assert normalize == "z_score" or min(found.values()) >= 0


def test_a_long_ranking_among_short_ones_takes_little_memory(tmp_path: Path) -> None:
    """50,000 queries of one hit, and one of 20,000: rows of one length would take 16 GB for each run."""
    many, long = 50_000, 20_000
    lines = [f"q{number} Q0 d{number} 1 1 t\n" for number in range(many)]
    lines += [f"long Q0 d{number} 1 {long - number} t\n" for number in range(long)]
    runs = [tmp_path / "a.trec", tmp_path / "b.trec"]
    for run in runs:
        run.write_text("".join(lines), encoding="utf-8")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    before = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (before + (3 << 30), limit))
    try:
        facts = fuse_runs(runs, tmp_path / "fused.trec", depth=3)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    assert facts["queries"] == many + 1
    fused = (tmp_path / "fused.trec").read_text(encoding="utf-8").splitlines()
    assert len(fused) == many + 3
    assert [line.split()[2] for line in fused if line.startswith("long ")] == ["d0", "d1", "d2"]


@pytest.mark.parametrize(
    ("method", "weights", "message"),
    [
        ("weighted", (0, 0), "all weights are 0"),
        ("weighted", (-1, 2), "the weights are -1, 2: give finite numbers of 0 or more"),
        ("interpolation", (1.5,), "the weights are 1.5: .* for interpolation up to 1"),
        ("weighted", (math.nan, 1), "the weights are nan, 1: give finite numbers"),
        ("interpolation", (math.inf,), "the weights are inf: give finite numbers"),
    ],
)
def test_weights_that_say_nothing_are_refused(
    tmp_path: Path, method: str, weights: tuple[float, ...], message: str
) -> None:
    runs = [tmp_path / "a.trec", tmp_path / "b.trec"]
    for run in runs:
        run.write_text("q1 Q0 d1 1 1 t\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        fuse_runs(runs, tmp_path / "fused.trec", method=method, weights=weights)


def test_k_without_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"k 10 with the method combsum.*k with rrf"):
        fuse_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "fused.trec", method="combsum", k=10)
    fuse = {"method": "combsum", "k": 10, "of": [{"model": {"backend": "bm25"}}] * 2}
    with pytest.raises(InputError, match=r"k 10 with the method combsum, and it is for rrf"):
        run_benchmark({"name": "t", "data": {"source": "sample"}, "fuse": fuse, "output": str(tmp_path)})


ROWS = st.lists(
    st.dictionaries(st.integers(0, 3), st.integers(0, 3).map(float), min_size=1), min_size=3, max_size=3
)


@given(ROWS, ROWS)
def test_blocks_of_queries_change_nothing(first: list[Any], second: list[Any]) -> None:
    rankings = [
        ranking(*(dict(sorted(row.items(), key=lambda hit: (-hit[1], -hit[0]))) for row in rows))
        for rows in (first, second)
    ]
    together = fused(*rankings, method="combmnz")
    with pytest.MonkeyPatch.context() as patch:
        resize(patch, fused_cells=1)
        assert fused(*rankings, method="combmnz") == together
