"""Exact search against NumPy brute force: ties, any cut of vectors and memory, any product."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pipeline.core.progress import silent
from pipeline.core.records import Embeddings, Float32, Ranking, VectorForm
from pipeline.engines.jobs import merge
from pipeline.search import candidates, exact, gpu, product, streaming_scan
from pipeline.search.similarity import Metric, unit_vectors
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


def rounded(made: Float32) -> Float32:
    """The nearest bfloat16."""
    return ((made.view(np.uint32) + np.uint32(1 << 15)) & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.fixture(params=["float32", "bfloat16", "bfloat16 in and out"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each product that a search may use; on processors without bfloat16, OpenVINO's in float32.

    The last is one whose results are rounded too, as OpenVINO may do.
    """
    kind, multiply = product.BFloat16Product, product.BFloat16Product.__call__
    monkeypatch.setattr(product, "has_bfloat16", lambda: True)
    monkeypatch.setattr(product, "ENOUGH", np.inf if request.param == "float32" else 0.0)
    if request.param == "bfloat16 in and out":
        monkeypatch.setattr(kind, "__call__", lambda self, rows: rounded(multiply(self, rows)))
    return str(request.param)


# small integers: equal scores are many, and zero vectors among them
SMALL = npst.arrays(
    np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(-1, 1).map(np.float32)
)


@settings(max_examples=60)
@given(SMALL, SMALL, st.integers(1, 60), st.sampled_from(METRICS), st.integers(1, 4))
def test_equals_brute_force_with_ties_zero_vectors_and_any_k(
    rows: Float32, queries: Float32, k: int, metric: Metric, shards: int
) -> None:
    assert same(best(rows, queries, k, metric, shards), brute_force(rows, queries, k, metric))


@pytest.mark.parametrize("metric", METRICS)
def test_equals_brute_force_whichever_product_finds_the_candidates(
    kernel: str, metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming_scan, "QUERIES", 20)  # more than one tile, and blocks of many sizes
    monkeypatch.setattr(streaming_scan, "BLOCK", 700)
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


@settings(max_examples=30)
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


@settings(max_examples=30)
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
        return exact.exact_search_via(
            find, Embeddings((rows,)), queries, k, ids(len(rows)), metric, bar, batch_size=batch_size
        )


def test_another_search_may_be_off_by_what_float32_can_be() -> None:
    random, last_bit = np.random.default_rng(5), 2.0**-17  # of scores from 64 to 128
    rows, queries = np.ones((500, 64), np.float32), np.ones((3, 64), np.float32)
    rows[:, 0] += random.integers(0, 5000, 500) * np.float32(last_bit)

    def find(some, most):  # type: ignore[no-untyped-def]
        made = some @ rows.T + random.integers(-30, 31, (len(some), len(rows))) * np.float32(last_bit)
        order = np.argsort(-made, axis=1)[:, :most]
        return order, np.take_along_axis(made, order, axis=1)

    with silent("", None, "") as bar:
        found = exact.exact_search_via(find, Embeddings((rows,)), queries, 10, ids(500), "inner_product", bar)
    assert same(found, brute_force(rows, queries, 10, "inner_product"))


def test_more_ties_than_the_other_search_gives_are_settled() -> None:
    rows = np.ones((3000, 4), np.float32)
    rows[::3] = 0.5
    index = faiss.IndexFlatIP(4)
    index.add(rows)
    queries = np.ones((3, 4), np.float32)
    expected = brute_force(rows, queries, 20, "inner_product")
    assert same(settled(index, rows, queries, 20, "inner_product", 2), expected)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_stored_vectors_are_searched_as_those_in_memory(
    tmp_path: Path, write_shard: Callable[..., None], precision: str
) -> None:
    rows = np.random.default_rng(3).standard_normal((900, 32), np.float32)

    def build(draft):  # type: ignore[no-untyped-def]
        for start in range(0, 900, 128):
            write_shard(draft, start, rows[start : start + 128])
        return {}, {}

    artifact, _ = Store(tmp_path).make(Recipe("passages", {}), build)
    stored = vector_shards.open_embeddings(artifact, VectorForm(halves=precision == "fp16"))
    held = rows.astype(np.float16).astype(np.float32) if precision == "fp16" else rows
    with silent("", None, "") as bar:
        found = exact.exact_search(stored, rows[:40], 50, ids(900), "cosine", bar, memory_mb=1)
    assert same(found, brute_force(held, rows[:40], 50, "cosine"))


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
    for kind in (product.Float32Product, product.BFloat16Product):
        made, (operand, moved) = kind(queries), kind.to_operand(rows)
        off = np.abs((made(operand) - half.astype(np.float32)) - (wide @ asked.T - half)).max(axis=0)
        longest = float(product.norm_bounds(rows).max())
        assert (off <= product.error_bound(made, longest, moved, dimension, metric)).all()


@pytest.mark.parametrize(("n_queries", "n", "dimension"), [(2, 1, 2), (9, 300, 24), (512, 4096, 384)])
def test_a_product_s_own_rounding_is_known(kernel: str, n_queries: int, n: int, dimension: int) -> None:
    queries, rows = np.zeros((n_queries, dimension), np.float32), np.zeros((n, dimension), np.float32)
    queries[:, :2], queries[0, 1], rows[:, :2] = (
        1,
        2**-10,
        (1, 2**-10),
    )  # bfloat16 holds these, not 1 + 2**-10
    made, (operand, moved) = product.BFloat16Product(queries), product.BFloat16Product.to_operand(rows)
    assert moved == 0 == made.query_errors.max()
    off = np.abs(made(operand)[:, 1:] - np.float32(1 + 2**-10)).max()
    assert off == (2**-10 if made.result_roundoff else 0)
    assert off <= product.error_bound(made, 1 + 2**-10, moved, dimension, "inner_product")[1:].min()


@pytest.mark.parametrize(("n", "dimension"), [(2, 2), (3000, 32)])
def test_near_duplicates_that_bfloat16_puts_in_another_order_are_found(
    kernel: str, n: int, dimension: int
) -> None:
    rows, queries = np.zeros((n, dimension), np.float32), np.zeros((2, dimension), np.float32)
    queries[:, :2], queries[1, 2:] = 1, 0.3
    rows[n // 2, :2] = 1, 2**-8 - 0.6 * 2**-16  # the best, which falls to 1 + 2**-8 - 2**-16, and then to 1
    rows[n // 3, :2] = 1 - 0.4 * 2**-8, 2**-8 + 2**-15  # rises to 1 + 2**-8 + 2**-15, and then to 1 + 2**-7
    found = best(rows, queries, 1, "inner_product")
    assert found.passages[:, 0].tolist() == [n // 2, n // 2]
    assert same(found, brute_force(rows, queries, 1, "inner_product"))


def test_no_more_hits_are_asked_of_another_search_than_it_gives() -> None:
    rows = np.random.default_rng(4).standard_normal((3000, 8), np.float32)
    index, asked = faiss.IndexFlatIP(8), []
    index.add(rows)

    def find(some, most):  # type: ignore[no-untyped-def]
        asked.append(most)
        return index.search(some, most)[::-1]

    for top_k in (1000, 1023, 1024, 2048):
        how = {"max_hits": gpu.max_hits(top_k)}
        with silent("", None, "") as bar:
            found = exact.exact_search_via(
                find, Embeddings((rows,)), rows[:3], top_k, ids(3000), "inner_product", bar, **how
            )
        assert same(found, brute_force(rows, rows[:3], top_k, "inner_product"))
    assert asked == [1024, 1024, 1088, 2048]
