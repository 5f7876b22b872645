"""Search against NumPy brute force, ties included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pipeline.errors import InputError
from pipeline.metrics.order import descending_id_rank
from pipeline.progress import silent
from pipeline.records import Embeddings, Float32, Ranking
from pipeline.search import faiss_index


def ids(n: int) -> list[str]:
    """Ids whose order as strings is not that of their rows."""
    return [str((row * 7919) % 100_003) for row in range(n)]


def find(vectors: Float32, queries: Float32, top_k: int, batch_size: int = 256) -> Ranking:
    shards = tuple(np.array_split(vectors, 3)) if len(vectors) > 2 else (vectors,)
    rank = descending_id_rank(pa.chunked_array([ids(len(vectors))]))
    with silent("", None, "") as bar:
        index = faiss_index.build(Embeddings(shards), "Flat", bar)
        return faiss_index.search(index, queries, top_k, rank, batch_size, bar)


def brute_force(vectors: Float32, queries: Float32, top_k: int) -> list[list[int]]:
    """Row numbers by score descending, then id descending as a string."""
    named = ids(len(vectors))
    found = []
    for scores in queries @ vectors.T:
        order = sorted(range(len(vectors)), key=lambda row: named[row], reverse=True)
        found.append(sorted(order, key=lambda row: -scores[row])[:top_k])
    return found


# small integers: their products are exact in any order of summation, so equal scores are really equal
SMALL = npst.arrays(
    np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(-1, 1).map(np.float32)
)


@settings(max_examples=150, deadline=None)
@given(SMALL, SMALL, st.integers(1, 60), st.integers(1, 50))
def test_equals_brute_force_with_ties_zero_vectors_and_any_k(
    vectors: Float32, queries: Float32, top_k: int, batch_size: int
) -> None:
    ranking = find(vectors, queries, top_k, batch_size)
    assert ranking.passages.tolist() == brute_force(vectors, queries, top_k)
    assert ranking.passages.shape == (len(queries), min(top_k, len(vectors)))
    for row, scores in enumerate(ranking.scores):
        assert scores.tolist() == (vectors[ranking.passages[row]] @ queries[row]).tolist()


def test_all_scores_equal_over_the_cut() -> None:
    vectors = np.ones((5000, 4), np.float32)
    ranking = find(vectors, np.ones((2, 4), np.float32), 10)
    expected = sorted(range(5000), key=lambda row: ids(5000)[row], reverse=True)[:10]
    assert ranking.passages.tolist() == [expected, expected]


def test_equals_brute_force_on_real_shaped_vectors() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((3000, 64), np.float32)
    queries = generator.standard_normal((50, 64), np.float32)
    assert find(vectors, queries, 100).passages.tolist() == brute_force(vectors, queries, 100)


def test_written_and_read_back_it_finds_the_same(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).standard_normal((500, 16), np.float32)
    rank = descending_id_rank(pa.chunked_array([ids(500)]))
    with silent("", None, "") as bar:
        index = faiss_index.build(Embeddings((vectors,)), "Flat", bar)
        faiss_index.write(index, tmp_path / "index.faiss")
        again = faiss_index.read(tmp_path / "index.faiss")
        before = faiss_index.search(index, vectors[:20], 30, rank, 256, bar)
        after = faiss_index.search(again, vectors[:20], 30, rank, 256, bar)
    assert (before.passages == after.passages).all()
    assert (before.scores == after.scores).all()


def test_hits_an_index_does_not_find_are_padding() -> None:
    vectors = np.random.default_rng(2).standard_normal((400, 8), np.float32)
    rank = descending_id_rank(pa.chunked_array([ids(400)]))
    with silent("", None, "") as bar:
        index = faiss_index.build(Embeddings((vectors,)), "HNSW4", bar)
        index.hnsw.efSearch = 1
        ranking = faiss_index.search(index, vectors[:5], 400, rank, 256, bar)
    for passages, scores in zip(ranking.passages, ranking.scores, strict=True):
        found = passages >= 0
        assert found.any()
        assert (np.diff(found.astype(int)) <= 0).all()
        assert np.isneginf(scores[~found]).all()
        assert len(set(passages[found].tolist())) == found.sum()


def test_an_unknown_factory_is_refused() -> None:
    with silent("", None, "") as bar, pytest.raises(InputError, match=r"index\.factory: 'Flatt'"):
        faiss_index.build(Embeddings((np.ones((4, 4), np.float32),)), "Flatt", bar)


def test_queries_of_another_dimension_are_refused() -> None:
    with pytest.raises(InputError, match="8 dimensions and the index 4"):
        find(np.ones((4, 4), np.float32), np.ones((1, 8), np.float32), 2)
