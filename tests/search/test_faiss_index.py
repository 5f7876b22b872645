"""Faiss indexes: built from shards, kept, reopened and searched, against NumPy brute force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pipeline.core import machine
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.records import Embeddings, Float32, Ranking
from pipeline.search import faiss_index, faiss_search
from pipeline.search.scoring import Metric, unit_vectors

METRICS: tuple[Metric, ...] = ("inner_product", "cosine", "l2")


def ids(n: int) -> list[str]:
    """Ids whose order as strings is not that of their rows."""
    return [str((row * 7919) % 100_003) for row in range(n)]


def build(
    vectors: Float32, factory: str = "Flat", metric: Metric = "inner_product", shards: int = 3, **how: int
) -> Any:
    parts = tuple(np.array_split(vectors, min(shards, len(vectors))))
    with silent("", None, "") as bar:
        return faiss_index.build_index(Embeddings(parts), factory, metric, bar, **how)


def search(
    index: Any,
    queries: Float32,
    top_k: int,
    metric: Metric = "inner_product",
    batch_size: int = 256,
) -> Ranking:
    named = pa.chunked_array([ids(index.ntotal)])
    with silent("", None, "") as bar:
        return faiss_search.search_index(index, queries, top_k, named, metric, batch_size, bar)


def brute_force(vectors: Float32, queries: Float32, top_k: int, metric: Metric) -> list[list[int]]:
    """Row numbers by score descending, then id descending as a string."""
    if metric == "cosine":
        vectors, queries = unit_vectors(vectors), unit_vectors(queries)
    named, found = ids(len(vectors)), []
    for query in queries:
        scores = -((vectors - query) ** 2).sum(axis=1) if metric == "l2" else vectors @ query
        order = sorted(range(len(vectors)), key=lambda row: named[row], reverse=True)
        found.append(sorted(order, key=lambda row: -scores[row])[:top_k])
    return found


# small integers: their products are exact in any order of summation, so equal scores are really equal
SMALL = npst.arrays(
    np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(-1, 1).map(np.float32)
)


@settings(max_examples=50)
@given(SMALL, SMALL, st.integers(1, 60), st.integers(1, 50), st.sampled_from(["inner_product", "l2"]))
def test_equals_brute_force_with_ties_zero_vectors_and_any_k(
    vectors: Float32, queries: Float32, top_k: int, batch_size: int, metric: Metric
) -> None:
    ranking = search(build(vectors, "Flat", metric), queries, top_k, metric, batch_size)
    assert ranking.passages.tolist() == brute_force(vectors, queries, top_k, metric)
    assert ranking.passages.shape == (len(queries), min(top_k, len(vectors)))
    for row, scores in enumerate(ranking.scores):
        hits, query = vectors[ranking.passages[row]], queries[row]
        expected = -((hits - query) ** 2).sum(axis=1) if metric == "l2" else hits @ query
        assert scores.tolist() == expected.tolist()


def test_all_scores_equal_over_the_cut() -> None:
    index, queries = build(np.ones((5000, 4), np.float32)), np.ones((2, 4), np.float32)
    ranking = search(index, queries, 10)
    expected = sorted(range(5000), key=lambda row: ids(5000)[row], reverse=True)[:10]
    assert ranking.passages.tolist() == [expected, expected]


# the share of the exact top 10 of 40 queries among 2,000 vectors that each must find
FACTORIES: list[tuple[str, Metric, float]] = [
    *(("Flat", metric, 1.0) for metric in METRICS),
    *(("HNSW32", metric, 0.9) for metric in METRICS),
    *(("IVF8,Flat", metric, 0.3) for metric in METRICS),
    ("SQfp16", "inner_product", 0.97),
    ("SQ8", "cosine", 0.9),
    ("IVF8,PQ16x4", "inner_product", 0.15),
    ("OPQ2,PQ16x4", "l2", 0.3),
    ("PCA24,Flat", "inner_product", 0.4),
    ("PQ16x4,RFlat", "l2", 0.5),
    ("IVF16_HNSW8,SQ8", "cosine", 0.15),
]


@pytest.fixture(scope="module")
def rows() -> Float32:
    return np.random.default_rng(0).standard_normal((2000, 32), np.float32)


@pytest.mark.parametrize(("factory", "metric", "share"), FACTORIES)
def test_an_index_is_built_kept_reopened_and_finds_what_it_should(
    factory: str, metric: Metric, share: float, rows: Float32, tmp_path: Path
) -> None:
    queries = rows[:40] + np.random.default_rng(1).standard_normal((40, 32), np.float32) / 4
    index = build(rows, factory, metric, train_rows=800)
    faiss_index.write_index(index, tmp_path / "index.faiss")
    found = search(index, queries, 10, metric)
    for mapped in (True, False):
        again = search(faiss_index.read_index(tmp_path / "index.faiss", mapped=mapped), queries, 10, metric)
        assert (again.passages == found.passages).all()
        assert (again.scores == found.scores).all()
    exact = brute_force(rows, queries, 10, metric)
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(found.passages.tolist(), exact, strict=True)]
    assert np.mean(shares) >= share
    assert (np.diff(found.scores, axis=1) <= 0).all()


@pytest.mark.parametrize("factory", ["HNSW8", "IVF8,PQ8x4", "OPQ2,IVF4,SQ8"])
def test_shards_and_runs_change_nothing(factory: str, rows: Float32) -> None:
    built = [
        faiss.serialize_index(build(rows, factory, shards=shards, train_rows=800)) for shards in (1, 7, 7)
    ]
    assert (built[0] == built[1]).all()
    assert (built[1] == built[2]).all()


def test_the_seed_and_the_size_choose_what_is_trained_on(rows: Float32) -> None:
    def centroids(**how: int) -> Float32:
        index = build(rows, "IVF4,Flat", **how)
        return index.quantizer.reconstruct_n(0, 4).copy()

    assert (centroids(train_rows=200, seed=1) == centroids(train_rows=200, seed=1)).all()
    assert (centroids(train_rows=200, seed=1) != centroids(train_rows=200, seed=2)).any()
    assert (centroids(train_rows=200, seed=1) != centroids(train_rows=300, seed=1)).any()


def test_search_parameters_reach_the_index(rows: Float32) -> None:
    index = build(rows, "IVF16,Flat")
    exact = brute_force(rows, rows[:40], 10, "inner_product")
    overlaps = []
    for nprobe in (1, 4, 16):
        faiss_index.set_search_parameters(index, "IVF16,Flat", {"nprobe": nprobe})
        found = search(index, rows[:40], 10).passages.tolist()
        overlaps.append(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, exact, strict=True)]))
    assert overlaps[0] < overlaps[1] < overlaps[2] == 1


def test_hits_an_index_does_not_find_are_padding() -> None:
    vectors = np.random.default_rng(2).standard_normal((400, 8), np.float32)
    index = build(vectors, "HNSW4")
    faiss_index.set_search_parameters(index, "HNSW4", {"efSearch": 1})
    ranking = search(index, vectors[:5], 400)
    for passages, scores in zip(ranking.passages, ranking.scores, strict=True):
        found = passages >= 0
        assert found.any()
        assert (np.diff(found.astype(int)) <= 0).all()
        assert np.isneginf(scores[~found]).all()
        assert len(set(passages[found].tolist())) == found.sum()


@pytest.mark.parametrize(
    ("factory", "metric", "parameters", "message"),
    [
        ("Flatt", "inner_product", {}, r"index\.factory: 'Flatt'"),
        ("LSH", "inner_product", {}, r"index\.factory: 'LSH'"),
        ("IDMap,Flat", "l2", {}, r"'IDMap,Flat': IDMap replaces the row numbers"),
        ("IVF4_HNSW1,Flat", "l2", {}, r"'IVF4_HNSW1,Flat': HNSW1 makes Faiss crash"),
        ("IVF0,Flat", "l2", {}, r"'IVF0,Flat': IVF0 makes Faiss crash"),
        ("PCA16,IDMap,Flat", "l2", {}, r"'PCA16,IDMap,Flat': IDMap replaces the row numbers"),
        ("HNSW8_PQ4", "inner_product", {}, r"'HNSW8_PQ4': Faiss builds it for index\.metric: l2 only"),
        ("PCA16,NSG8_PQ4", "cosine", {}, r"'PCA16,NSG8_PQ4': Faiss builds it for index\.metric: l2 only"),
        ("HNSW8", "l2", {"nprobe": 4}, r"'nprobe' is not a parameter .*'HNSW8'\. Allowed: efSearch"),
        ("Flat", "l2", {"efSearch": 4}, r"'efSearch' is not a parameter .*Allowed: none"),
        ("IVF16,Flat", "l2", {"nprobe": 17}, r"'nprobe' is 17 .*Allowed: 1 to 16"),
        ("IVF16,Flat", "cosine", {"nprobe": 0}, r"'nprobe' is 0 .*Allowed: 1 to 16"),
        ("HNSW8", "l2", {"efSearch": -1}, r"'efSearch' is -1 .*Allowed: 1 or more"),
    ],
)
def test_what_faiss_cannot_do_is_refused_beforehand(
    factory: str, metric: Metric, parameters: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        faiss_index.check_index(factory, metric, parameters)


@pytest.mark.parametrize(
    "factory",
    ["PQ25", "IVF16,PQ36x4fs", "OPQ50,IVF4,PQ50", "IVF16,PQ8+11", "IMI2x4,PQ768", "PQ10x16", "LSHr"],
)
def test_what_fits_vectors_of_some_dimension_is_not_refused_beforehand(factory: str) -> None:
    before = machine.resident_mb()
    faiss_index.check_index(factory, "l2", {})
    assert machine.resident_mb() - before < 100  # PQ10x16 and LSHr grow with the dimension


def test_what_does_not_fit_the_dimension_is_refused_as_soon_as_that_is_known() -> None:
    faiss_index.check_index("PCA21,PQ7", "l2", {}, 384)
    with pytest.raises(InputError, match=r"'PQ7': .*multiple of the number of subquantizers"):
        faiss_index.check_index("PQ7", "l2", {}, 384)


@pytest.mark.parametrize("dimension", [-1, 0, 1 << 40])
def test_a_dimension_that_no_vectors_have_is_left_to_the_model_to_refuse(dimension: int) -> None:
    faiss_index.check_index("PQ7", "l2", {}, dimension)


def test_too_few_vectors_to_train_on_are_refused() -> None:
    with pytest.raises(InputError, match=r"'IVF8,Flat' on 4 of 4 vectors: .*at least as large"):
        build(np.eye(4, dtype=np.float32), "IVF8,Flat")


def test_too_few_vectors_for_a_graph_are_refused() -> None:
    with pytest.raises(InputError, match=r"'NSG16' with 50 vectors: .*smaller than 100"):
        build(np.eye(50, dtype=np.float32), "NSG16")


def test_a_graph_that_takes_all_vectors_at_once_is_given_them(
    rows: Float32, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss_index, "CHUNK", 300)
    found = search(build(rows, "PCA24,NSG16"), rows[:20], 10)
    assert found.passages.shape == (20, 10)


def test_a_passage_that_a_graph_gives_twice_is_kept_once() -> None:
    generator = np.random.default_rng(1)
    centers = generator.standard_normal((20, 32))
    vectors, queries = (
        (centers[generator.integers(0, 20, n)] + generator.standard_normal((n, 32)) / 2).astype(np.float32)
        for n in (600, 8)
    )
    vectors[:30] = vectors[30:60]
    index = build(vectors, "NSG16_SQ8")
    for k in (10, 50, 100, 600):
        ranking = search(index, queries, k)
        for row, scores in zip(ranking.passages, ranking.scores, strict=True):
            found = row >= 0
            assert len(set(row[found].tolist())) == found.sum() >= k - 10
            assert (np.diff(found.astype(int)) <= 0).all()
            assert np.isneginf(scores[~found]).all()
