"""Exact search against NumPy brute force: ties, any cut of vectors and memory, any product."""

from __future__ import annotations

import itertools
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pipeline import vectors
from pipeline.artifacts import Recipe, Store
from pipeline.progress import silent
from pipeline.records import Embeddings, Float32, Ranking
from pipeline.search import exact, product, scan
from pipeline.search.scores import Metric, unit

METRICS: tuple[Metric, ...] = ("inner_product", "cosine", "l2")


def ids(n: int) -> pa.ChunkedArray:
    """Ids whose order as strings is not that of their rows."""
    return pa.chunked_array([[str((row * 7919) % 100_003) for row in range(n)]])


def brute_force(rows: Float32, queries: Float32, k: int, metric: Metric) -> Ranking:
    """Scores in double precision, rounded; then by score, and by id as a string, both descending."""
    if metric == "cosine":
        rows, queries = unit(rows), unit(queries)
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
        return exact.best(Embeddings(parts), queries, k, ids(len(rows)), metric, bar, **how)


def same(left: Ranking, right: Ranking) -> bool:
    return bool(
        left.passages.shape == right.passages.shape
        and (left.passages == right.passages).all()
        and (left.scores == right.scores).all()
    )


@pytest.fixture(params=["float32", "bfloat16"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each product that a search may use; on processors without bfloat16, OpenVINO's in float32."""
    monkeypatch.setattr(product, "_has_bfloat16", lambda: True)
    monkeypatch.setattr(product, "ENOUGH", 0.0 if request.param == "bfloat16" else np.inf)
    return str(request.param)


# small integers: equal scores are many, and zero vectors among them
SMALL = npst.arrays(
    np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(-1, 1).map(np.float32)
)


@settings(max_examples=60, deadline=None)
@given(SMALL, SMALL, st.integers(1, 60), st.sampled_from(METRICS), st.integers(1, 4))
def test_equals_brute_force_with_ties_zero_vectors_and_any_k(
    rows: Float32, queries: Float32, k: int, metric: Metric, shards: int
) -> None:
    assert same(best(rows, queries, k, metric, shards), brute_force(rows, queries, k, metric))


@pytest.mark.parametrize("metric", METRICS)
def test_equals_brute_force_whichever_product_finds_the_candidates(
    kernel: str, metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "QUERIES", 20)  # more than one tile, and blocks of many sizes
    monkeypatch.setattr(scan, "BLOCK", 700)
    monkeypatch.setattr(scan, "SPARE", 16)
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


@settings(max_examples=30, deadline=None)
@given(SMALL, SMALL, st.integers(1, 30), st.lists(st.integers(1, 40), max_size=3), st.sampled_from(METRICS))
def test_parts_merge_into_the_whole(
    rows: Float32, queries: Float32, k: int, cuts: list[int], metric: Metric
) -> None:
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = []
    with silent("", None, "") as bar:
        for start, stop in itertools.pairwise(edges):
            part = Embeddings((rows[start:stop],))
            parts.append(exact.best(part, queries, k, ids(len(rows)), metric, bar, first_row=start))
    assert same(exact.merge(parts, k, ids(len(rows))), brute_force(rows, queries, k, metric))


@settings(max_examples=30, deadline=None)
@given(SMALL, SMALL, st.integers(1, 60), st.sampled_from(["inner_product", "l2"]), st.integers(1, 7))
def test_another_exact_search_settles_to_the_same(
    rows: Float32, queries: Float32, k: int, metric: Metric, batch_size: int
) -> None:
    index = (faiss.IndexFlatL2 if metric == "l2" else faiss.IndexFlatIP)(3)
    index.add(rows)
    expected = brute_force(rows, queries, k, metric)
    assert same(settled(index, rows, queries, k, metric, batch_size), expected)


def settled(
    index: faiss.Index, rows: Float32, queries: Float32, k: int, metric: Metric, batch_size: int
) -> Ranking:
    def find(some, most):  # type: ignore[no-untyped-def]
        scores, passages = index.search(some, most)
        return passages, 0 - scores if metric == "l2" else scores

    with silent("", None, "") as bar:
        return exact.settle(
            find, Embeddings((rows,)), queries, k, ids(len(rows)), metric, bar, batch_size=batch_size
        )


def test_more_ties_than_the_other_search_gives_are_settled() -> None:
    rows = np.ones((3000, 4), np.float32)
    rows[::3] = 0.5
    index = faiss.IndexFlatIP(4)
    index.add(rows)
    queries = np.ones((3, 4), np.float32)
    expected = brute_force(rows, queries, 20, "inner_product")
    assert same(settled(index, rows, queries, 20, "inner_product", 2), expected)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_stored_vectors_are_searched_as_those_in_memory(tmp_path: Path, precision: vectors.Precision) -> None:
    rows = np.random.default_rng(3).standard_normal((900, 32), np.float32)

    def build(draft):  # type: ignore[no-untyped-def]
        for start in range(0, 900, 128):
            vectors.write(draft, start, rows[start : start + 128], precision)
        return {}, {}

    artifact, _ = Store(tmp_path).make(Recipe("passages", {}), build)
    stored = vectors.open_embeddings(artifact)
    held = rows.astype(np.float16).astype(np.float32) if precision == "fp16" else rows
    with silent("", None, "") as bar:
        found = exact.best(stored, rows[:40], 50, ids(900), "cosine", bar, memory_mb=1)
    assert same(found, brute_force(held, rows[:40], 50, "cosine"))


@settings(max_examples=15, deadline=None)
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
    for kind in (product.Single, product.Half):
        made, (operand, moved) = kind(queries), kind.prepare(rows)
        off = np.abs((made(operand) - half.astype(np.float32)) - (wide @ asked.T - half)).max(axis=0)
        longest = float(product.lengths(rows).max())
        assert (off <= product.error_bound(made, longest, moved, dimension, metric)).all()
