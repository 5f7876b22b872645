"""Exact search against NumPy brute force: ties, any cut of vectors and memory, any product."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pipeline.core import machine
from pipeline.core.display import silent
from pipeline.core.records import Embeddings, Float32, Ranking, VectorForm
from pipeline.engines.jobs import merge
from pipeline.native.nearest import dense
from pipeline.search import (
    candidates,
    exact,
    filtered_scan,
    scan,
    scoring,
)
from pipeline.search.scoring import Metric, unit_vectors
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store

METRICS: tuple[Metric, ...] = ("inner_product", "cosine", "l2")


def ids(n: int) -> pa.ChunkedArray:
    """Ids whose order as strings is not that of their rows."""
    return pa.chunked_array([[str((row * 7919) % 100_003) for row in range(n)]])


def brute_force(rows: Float32, queries: Float32, k: int, metric: Metric) -> Ranking:
    """Scores in double precision, rounded; then by score, and by id as a string, both descending."""
    if metric == "cosine":
        rows, queries = unit_vectors(rows), unit_vectors(queries)
    wide, asked = rows.astype(np.float64), queries.astype(np.float64)
    if metric == "l2":
        scores = np.stack([0 - ((wide - query) ** 2).sum(axis=1) for query in asked])
    else:
        scores = asked @ wide.T
    scores = scores.astype(np.float32)
    names = np.array(ids(len(rows)).to_pylist())
    by_id = np.argsort(names)[::-1]
    order = by_id[np.argsort(-scores[:, by_id], axis=1, kind="stable")][:, :k]
    return Ranking(order, np.take_along_axis(scores, order, axis=1))


def best(rows: Float32, queries: Float32, k: int, metric: Metric, shards: int = 3, **how: int) -> Ranking:
    parts = tuple(part for part in np.array_split(rows, shards) if len(part))
    with silent("", None, "") as bar:
        return exact.exact_search(Embeddings(parts), queries, k, ids(len(rows)), metric, bar, **how)


def same(left: Ranking, right: Ranking) -> bool:
    return bool(
        left.passages.shape == right.passages.shape
        and (left.passages == right.passages).all()
        and (left.scores == right.scores).all()
    )


@contextlib.contextmanager
def multiplied_in(kind: str) -> Iterator[None]:
    """Let every search find its candidates in `float32` or `int8`, on any processor, or on AMX."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "has_vnni", lambda: True)
        patch.setattr(machine, "has_amx", lambda: kind == "int8 on AMX")
        patch.setattr(exact, "ENOUGH", np.inf if kind == "float32" else 0.0)
        patch.setattr(filtered_scan, "MANY", -1 if kind == "given up" else 2)
        patch.setattr(filtered_scan, "SETTLED", 0)  # given up after the first piece
        yield


KINDS = ("float32", "int8", "given up", *(["int8 on AMX"] if machine.has_amx() else []))


@pytest.fixture(params=KINDS)
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each product that a search may use."""
    with multiplied_in(request.param):
        yield request.param


# small integers: equal scores are many, and zero vectors among them
SMALL = npst.arrays(
    np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(-1, 1).map(np.float32)
)


@settings(max_examples=20)
@given(SMALL, SMALL, st.integers(1, 60), st.sampled_from(METRICS), st.integers(1, 4), st.sampled_from(KINDS))
def test_equals_brute_force_with_ties_zero_vectors_and_any_k(
    rows: Float32, queries: Float32, k: int, metric: Metric, shards: int, kind: str
) -> None:
    with multiplied_in(kind):
        assert same(best(rows, queries, k, metric, shards), brute_force(rows, queries, k, metric))


@settings(max_examples=15)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 700),
    st.integers(1, 150),
    st.integers(1, 130),
    st.integers(1, 90),
    st.sampled_from(METRICS),
    st.sampled_from(KINDS[1:]),
)
def test_integers_leave_every_bit_as_float32_finds_it_whatever_the_sizes(
    seed: int, n: int, n_queries: int, dimension: int, k: int, metric: Metric, kind: str
) -> None:
    random = np.random.default_rng(seed)
    rows, queries = (random.standard_normal((some, dimension), np.float32) for some in (n, n_queries))
    rows *= 10.0 ** random.integers(-2, 3, (n, 1)).astype(np.float32)
    rows[random.integers(0, n, n // 3)] = rows[0]
    with multiplied_in("float32"):
        expected = best(rows, queries, k, metric)
    with multiplied_in(kind):
        assert same(best(rows, queries, k, metric, memory_mb=1), expected)


@pytest.mark.parametrize("metric", METRICS)
def test_equals_brute_force_whichever_product_finds_the_candidates(
    kernel: str, metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "QUERIES", 20)  # more than one tile, and blocks of many sizes
    monkeypatch.setattr(scan, "BLOCK", 700)
    monkeypatch.setattr(filtered_scan, "PIECE", 700)
    monkeypatch.setattr(filtered_scan, "ROOM", dense.ROOM)
    monkeypatch.setattr(candidates, "SPARE", 16)
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((5000, 24), np.float32) * generator.uniform(0.1, 10, (5000, 1)).astype(
        "f4"
    )
    rows[1000:1400] = rows[7]  # ties by hundreds, over the cut for some queries
    rows[2000:2050] = 0
    queries = np.concatenate([generator.standard_normal((48, 24), np.float32), rows[6:8], rows[2000:2001]])
    expected = brute_force(rows, queries, 60, metric)
    assert same(best(rows, queries, 60, metric), expected)
    assert same(best(rows, queries, 60, metric, shards=9, memory_mb=1), expected)


def test_scores_that_rise_with_the_rows_are_found(kernel: str) -> None:
    rows = np.linspace(0.1, 1, 4000, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    queries = np.ones((2, 4), np.float32)
    assert same(best(rows, queries, 5, "inner_product"), brute_force(rows, queries, 5, "inner_product"))


def test_all_scores_equal_over_the_cut(kernel: str) -> None:
    rows, queries = np.ones((5000, 4), np.float32), np.ones((2, 4), np.float32)
    assert same(best(rows, queries, 10, "inner_product"), brute_force(rows, queries, 10, "inner_product"))


def test_no_query_finds_nothing() -> None:
    none = best(np.ones((4, 2), np.float32), np.empty((0, 2), np.float32), 3, "inner_product")
    assert none.passages.shape == none.scores.shape == (0, 3)


@settings(max_examples=20)
@given(SMALL, SMALL, st.integers(1, 30), st.lists(st.integers(1, 40), max_size=3), st.sampled_from(METRICS))
def test_parts_merge_into_the_whole(
    rows: Float32, queries: Float32, k: int, cuts: list[int], metric: Metric
) -> None:
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    merged: Ranking | None = None
    with silent("", None, "") as bar:
        for start, stop in itertools.pairwise(edges):
            part, own = Embeddings((rows[start:stop],)), ids(len(rows)).slice(start, stop - start)
            found = exact.exact_search(part, queries, k, own, metric, bar)
            merged = merge(merged, found, start, k, ids(len(rows)))
    assert merged is not None
    assert same(merged, brute_force(rows, queries, k, metric))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_stored_vectors_are_searched_as_those_in_memory(
    tmp_path: Path, write_shard: Callable[..., None], precision: str
) -> None:
    rows = np.random.default_rng(3).standard_normal((900, 32), np.float32)

    def build(draft):  # type: ignore[no-untyped-def]
        for start in range(0, 900, 128):
            write_shard(draft, start, rows[start : start + 128])
        return {}

    artifact = Store(tmp_path).make(Recipe("passages", {}), build)
    stored = vector_shards.open_embeddings(artifact, VectorForm(halves=precision == "fp16"))
    held = rows.astype(np.float16).astype(np.float32) if precision == "fp16" else rows
    with silent("", None, "") as bar:
        found = exact.exact_search(stored, rows[:40], 50, ids(900), "cosine", bar, memory_mb=1)
    assert same(found, brute_force(held, rows[:40], 50, "cosine"))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("metric", METRICS)
def test_vectors_of_which_the_first_dimensions_are_kept_are_cut_wherever_they_are_read(
    kernel: str, metric: Metric, parts: int
) -> None:
    random = np.random.default_rng(6)
    rows, queries = (random.standard_normal((n, 32), np.float32) for n in (900, 40))
    kept = Embeddings(tuple(np.array_split(rows, parts)), VectorForm(dimensions=20))
    with silent("", None, "") as bar:
        found = exact.exact_search(kept, queries[:, :20], 30, ids(900), metric, bar)
    assert same(found, brute_force(rows[:, :20], queries[:, :20], 30, metric))


def resident(path: Path) -> int:
    """Bytes of a file that are in this process's memory, where it has mapped it."""
    held, of_file = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        name, *values = line.split()
        if not name.endswith(":"):
            of_file = values[-1] == str(path)
        elif of_file and name == "Rss:":
            held += 1024 * int(values[0])
    return held


def test_stored_vectors_are_let_go_when_they_have_been_read(tmp_path: Path) -> None:
    path, held = tmp_path / "rows.npy", []
    np.save(path, np.random.default_rng(1).standard_normal((32_768, 256), np.float32))
    rows = np.load(path, mmap_mode="r")

    class Looking:
        def update(self, n: int = 1) -> None:
            held.append(resident(path))

    queries = np.array(rows[:10])
    exact.exact_search(
        Embeddings((rows,)), queries, 10, ids(len(rows)), "inner_product", Looking(), memory_mb=8
    )
    assert 0 < max(held) <= 8_000_000 < path.stat().st_size / 4


@settings(max_examples=15)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 300),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.sampled_from(METRICS),
)
def test_products_are_within_the_bound(seed: int, dimension: int, scale: float, metric: Metric) -> None:
    generator = np.random.default_rng(seed)
    rows, queries = (
        generator.standard_normal((n, dimension)).astype("f4") * np.float32(scale) for n in (30, 9)
    )
    wide, asked = rows.astype(np.float64), queries.astype(np.float64)
    half = (wide**2).sum(axis=1)[:, None] / 2 if metric == "l2" else np.zeros((30, 1))
    off = np.abs((rows @ queries.T - half.astype(np.float32)) - (wide @ asked.T - half)).max(axis=0)
    norms, longest = scoring.norm_bounds(queries), float(scoring.norm_bounds(rows).max())
    assert (off <= scoring.error_bound(norms, longest, dimension, metric)).all()


@pytest.mark.parametrize(("n", "dimension"), [(2, 2), (3000, 32)])
def test_near_duplicates_that_integers_put_in_another_order_are_found(
    kernel: str, n: int, dimension: int
) -> None:
    rows, queries = np.zeros((n, dimension), np.float32), np.zeros((2, dimension), np.float32)
    queries[:, :2], queries[1, 2:] = 1, 0.3
    rows[n // 2, :2] = 1, 0.4 / 127 + 1e-6  # the best, whose second number falls to 0 in int8
    rows[n // 3, :2] = 1 - 0.4 / 127, 0.6 / 127  # the second number rises to 1 / 127
    found = best(rows, queries, 1, "inner_product")
    assert (
        found.passages[:, 0].tolist()
        == brute_force(rows, queries, 1, "inner_product").passages[:, 0].tolist()
    )
    assert same(found, brute_force(rows, queries, 1, "inner_product"))


@pytest.mark.parametrize("metric", METRICS)
def test_lengths_of_any_ratio_and_numbers_that_outweigh_a_row_lose_nothing(
    kernel: str, metric: Metric
) -> None:
    random = np.random.default_rng(2)
    rows = random.standard_normal((3000, 31), np.float32)
    rows *= 10.0 ** random.integers(-17, 9, (3000, 1)).astype(np.float32)
    rows[::3, 5] *= 1e4  # all else is zero in int8
    rows[::7] = 0
    queries = random.standard_normal((70, 31), np.float32)
    queries[::5, 5], queries[1], queries[2:4] = 0, 0, queries[2:4] * np.array([[1e-20], [1e9]], np.float32)
    assert same(best(rows, queries, 40, metric), brute_force(rows, queries, 40, metric))


def test_a_filter_that_lets_too_many_pairs_pass_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    rows, queries = (random.standard_normal((some, 32), np.float32) for some in (6000, 64))
    spiked = rows.copy()
    spiked[:, 0], queries[:, 0] = 100, 0
    monkeypatch.setattr(filtered_scan, "PIECE", 1000)
    for vectors, is_useful in ((rows, True), (spiked, False)):
        found = filtered_scan.FilteredScan(Embeddings((vectors,)), queries, 10, ids(6000), "inner_product")
        with silent("", None, "") as bar:
            assert (found.search(1000, 2, bar) is not None) == is_useful
        with multiplied_in("int8"):
            assert same(
                best(vectors, queries, 10, "inner_product"),
                brute_force(vectors, queries, 10, "inner_product"),
            )


@pytest.mark.parametrize("share", [1, 0.5, 0])
@pytest.mark.parametrize("n", [300, 20_000])
def test_best_rows_that_are_stored_together_are_found(kernel: str, n: int, share: float) -> None:
    # the search guesses thresholds from spans of 256 rows, of which the first holds too many of the best here
    random = np.random.default_rng(5)
    rows = random.standard_normal((n, 16), np.float32)
    queries = random.standard_normal((40, 16), np.float32)
    best_of = np.argsort(-(rows @ queries[: round(40 * share)].T).max(axis=1, initial=-np.inf), kind="stable")
    rows = rows[best_of]
    rows[17:30] = rows[0]
    for k in (1, 90, 250):
        assert same(best(rows, queries, k, "inner_product"), brute_force(rows, queries, k, "inner_product"))


@pytest.mark.parametrize("metric", METRICS)
def test_rows_and_queries_with_nan_are_never_found(kernel: str, metric: Metric) -> None:
    random = np.random.default_rng(4)
    rows, queries = (random.standard_normal((some, 8), np.float32) for some in (3000, 5))
    rows[::9, 3] = np.nan
    queries[2, 1] = np.nan
    whole = np.flatnonzero(~np.isnan(rows).any(axis=1))
    found = best(rows, queries, 20, metric)
    assert (found.passages[2] == -1).all()
    kept = [0, 1, 3, 4]
    assert np.isin(found.passages[kept], whole).all()
    with multiplied_in("float32"):
        scores = best(rows[whole], queries[kept], 20, metric).scores
    assert (found.scores[kept] == scores).all()
