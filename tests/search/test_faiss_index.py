"""Faiss indexes: trained, built from shards, kept, reopened and searched, against the definition."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as npst
from inside import resize
from search.by_definition import BAR, best, ids, same, vector_scores

from pipeline import InputError
from pipeline.core import Embeddings, Ranking, resident_mb
from pipeline.search import (
    ApproximateSearcher,
    Metric,
    build_index,
    check_index,
    least_training_rows,
    read_index,
    set_search_parameters,
)


def build(
    vectors: np.ndarray, factory: str = "Flat", metric: Metric = "inner_product", shards: int = 3, **how: int
) -> Any:
    parts = tuple(np.array_split(vectors, min(shards, len(vectors))))
    return build_index(Embeddings(parts), factory, metric, BAR, **how)


def search(
    index: Any, queries: np.ndarray, top_k: int, metric: Metric = "inner_product", batch_size: int = 256
) -> Ranking:
    return ApproximateSearcher(index, metric, ids(index.ntotal), batch_size).search(queries, top_k, BAR)


def share(
    found: np.ndarray, rows: np.ndarray, queries: np.ndarray, metric: Metric = "inner_product"
) -> float:
    """The share of the best that are found; mean over queries."""
    expected = best(vector_scores(rows, queries, metric), found.shape[1]).passages
    return float(np.mean([np.isin(some, other).mean() for some, other in zip(found, expected, strict=True)]))


# small integers: their products are exact in any order of summation, so equal scores are really equal
SMALL = npst.arrays(
    np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(-1, 1).map(np.float32)
)


@settings(max_examples=50)
@given(SMALL, SMALL, st.integers(1, 60), st.integers(1, 50), st.sampled_from(["inner_product", "l2"]))
def test_hits_are_the_best_with_ties_zero_vectors_and_any_k(
    vectors: np.ndarray, queries: np.ndarray, top_k: int, batch_size: int, metric: Metric
) -> None:
    found = search(build(vectors, "Flat", metric), queries, top_k, metric, batch_size)
    assert same(found, best(vector_scores(vectors, queries, metric), top_k))


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2000, 32), np.float32)


@pytest.mark.parametrize(
    ("factory", "metric", "least"),  # the share of the exact top 10 among 2,000 vectors that each must find
    [
        ("HNSW32", "cosine", 0.9),
        ("HNSW32", "l2", 0.9),
        ("IVF8,Flat", "inner_product", 0.3),
        ("SQfp16", "inner_product", 0.97),
        ("OPQ2,PQ16x4np", "l2", 0.3),  # `np`: no polysemous training, which takes seconds
        ("PCA24,Flat", "inner_product", 0.4),
        ("PQ16x4np,RFlat", "l2", 0.5),
        ("IVF16_HNSW8,SQ8", "cosine", 0.15),
    ],
)
def test_an_index_is_built_kept_reopened_and_finds_what_it_should(
    factory: str, metric: Metric, least: float, rows: np.ndarray, tmp_path: Path
) -> None:
    queries = rows[:40] + np.random.default_rng(1).standard_normal((40, 32), np.float32) / 4
    index = build(rows, factory, metric)
    path, found = tmp_path / "index.faiss", search(index, queries, 10, metric)
    faiss.write_index(index, str(path))
    stored = faiss.serialize_index(index)
    assert path.read_bytes() == stored.tobytes()
    opened = [read_index(path, mapped=mapped) for mapped in (True, False)]
    opened += [read_index(some) for some in (stored, np.memmap(path, np.uint8, "r"))]
    assert all(same(search(again, queries, 10, metric), found) for again in opened)
    assert share(found.passages, rows, queries, metric) >= least
    assert (np.diff(found.scores, axis=1) <= 0).all()


@pytest.mark.parametrize(
    ("change", "same_bytes"),
    [({}, True), ({"shards": 7}, True), ({"seed": 1}, False)],
)
def test_the_seed_chooses_what_is_trained_on_and_shards_change_nothing(
    rows: np.ndarray, change: dict[str, int], same_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, train_rows=800)
    first, other = (faiss.serialize_index(build(rows, "OPQ2,IVF4,SQ8", **how)) for how in ({}, change))
    assert np.array_equal(first, other) == same_bytes


def test_search_parameters_reach_the_index(rows: np.ndarray) -> None:
    index, shares = build(rows, "IVF16,Flat"), []
    for nprobe in (1, 4, 16):
        set_search_parameters(index, "IVF16,Flat", {"nprobe": nprobe})
        shares.append(share(search(index, rows[:40], 10).passages, rows, rows[:40]))
    assert shares[0] < shares[1] < shares[2] == 1


def assert_padded(ranking: Ranking, least: int) -> None:
    """Every query has some hits, each once, and padding after them."""
    for passages, scores in zip(ranking.passages, ranking.scores, strict=True):
        found = passages >= 0
        assert len(set(passages[found].tolist())) == found.sum() >= least
        assert (np.diff(found.astype(int)) <= 0).all()
        assert np.isneginf(scores[~found]).all()


def test_hits_an_index_does_not_find_are_padding() -> None:
    vectors = np.random.default_rng(2).standard_normal((400, 8), np.float32)
    index = build(vectors, "HNSW4")
    set_search_parameters(index, "HNSW4", {"efSearch": 1})
    ranking = search(index, vectors[:5], 400)
    assert (ranking.passages < 0).any()
    assert_padded(ranking, 1)


def test_a_passage_that_a_graph_gives_twice_is_kept_once() -> None:
    generator = np.random.default_rng(1)
    centers = generator.standard_normal((20, 32))
    vectors, queries = (
        (centers[generator.integers(0, 20, n)] + generator.standard_normal((n, 32)) / 2).astype(np.float32)
        for n in (600, 8)
    )
    vectors[:30] = vectors[30:60]
    index = build(vectors, "NSG16_SQ8")
    for k in (10, 600):
        assert_padded(search(index, queries, k), k - 10)


def test_a_graph_that_takes_all_vectors_at_once_is_given_them(
    rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, faiss_rows=300)
    assert search(build(rows, "PCA24,NSG16"), rows[:20], 10).passages.shape == (20, 10)


@pytest.mark.parametrize(
    ("factory", "dimension"),
    [
        ("IVF16,PQ36x4fs", None),
        ("OPQ50,IVF4,PQ50", None),
        ("IMI2x4,PQ768", None),
        ("PQ10x16", None),  # this one and the next grow with the dimension
        ("LSHr", None),
        ("PCA21,PQ7", 384),
        ("PQ7", 1 << 40),  # the model refuses it
    ],
)
def test_what_fits_vectors_of_some_dimension_is_not_refused_beforehand(
    factory: str, dimension: int | None
) -> None:
    before = resident_mb()
    check_index(factory, "l2", {}, dimension)
    assert resident_mb() - before < 100


@pytest.mark.parametrize(
    ("factory", "vectors", "message"),
    [
        ("IVF8,Flat", 4, r"'IVF8,Flat' with 4 vectors: .*at least as large"),
        ("NSG16", 50, r"'NSG16' with 50 vectors: .*smaller than 100"),
    ],
)
def test_too_few_vectors_are_refused(factory: str, vectors: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(np.eye(vectors, dtype=np.float32), factory)


DIMENSION = 16
FACTORIES = {
    "HNSW8": 1, "HNSW8_SQ8": 1, "PCA8,IVF40,Flat": 40, "IVF64_HNSW8,SQ8": 64, "IVF8,PQ4x6np": 64,
    "HNSW8_PQ4x4": 16, "IMI2x4,Flat": 16, "PRQ2x2x4": 16, "OPQ4,IVF8,PQ4x4np": 256, "IVF40,Flat,RFlat": 40,
    "IVF8,PQ4x4np,Refine(PQ4x5np)": 32, "IVF40(PQ4x4np),Flat": 40, "IVF40,PQ4x4fs": 40,
}  # fmt: skip


@pytest.mark.parametrize(("factory", "expected"), FACTORIES.items())
def test_faiss_trains_on_as_many_and_not_on_fewer(factory: str, expected: int) -> None:
    needed = least_training_rows(faiss.index_factory(DIMENSION, factory))
    assert needed == expected
    vectors = np.random.default_rng(0).standard_normal((needed, DIMENSION)).astype(np.float32)
    faiss.index_factory(DIMENSION, factory).train(vectors)
    if needed > 1:
        with pytest.raises(RuntimeError):
            faiss.index_factory(DIMENSION, factory).train(vectors[1:])


@pytest.mark.parametrize("factory", ["HNSW16", "IVF8_HNSW8,Flat"])
def test_a_graph_is_the_same_in_each_build_and_on_any_number_of_threads(factory: str) -> None:
    """faiss#5486: before it, each build of several threads linked other vectors."""
    vectors = np.random.default_rng(0).normal(size=(4000, 12)).astype(np.float32)
    threads, built = faiss.omp_get_max_threads(), []
    try:
        for count in (1, 4, 4):
            faiss.omp_set_num_threads(count)
            built.append(faiss.serialize_index(build(vectors, factory)).tobytes())
    finally:
        faiss.omp_set_num_threads(threads)
    assert built[0] == built[1] == built[2]


def test_a_number_of_lists_that_is_not_whole_is_refused() -> None:
    """It was cut to a whole number: 1.5 ran as 1."""
    with pytest.raises(InputError, match=r"search.parameters: 'nprobe' is 1.5.*a whole number"):
        set_search_parameters(build(np.eye(64, dtype=np.float32), "IVF2,Flat"), "IVF2,Flat", {"nprobe": 1.5})
