"""Sparse search: equal to brute force in float64, with the contract's ties, however the index is cut."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from search.by_definition import BAR, best, ids, positive, same

from pipeline.core.order import descending_id_rank
from pipeline.core.records import RaggedRows, Ranking
from pipeline.native import nearest
from pipeline.search import inverted_index

WORDS = 12


def ragged(rows: list[dict[int, float]]) -> RaggedRows:
    words = [word for row in rows for word in sorted(row)]
    weights = [row[word] for row in rows for word in sorted(row)]
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    return RaggedRows(ends, (np.array(words, np.int32), np.array(weights, np.float32)))


def brute_force(passages: RaggedRows, queries: RaggedRows, k: int) -> Ranking:
    whole = [np.zeros((len(rows), WORDS)) for rows in (passages, queries)]
    for rows, matrix in zip((passages, queries), whole, strict=True):
        matrix[np.repeat(np.arange(len(rows)), rows.lengths), rows.columns[0]] = rows.columns[1]
    return positive(best(whole[1] @ whole[0].T, k))


def found(passages: RaggedRows, queries: RaggedRows, k: int, memory: int = 1 << 20) -> Ranking:
    rank = descending_id_rank(ids(len(passages)))
    return inverted_index.search(inverted_index.InvertedSegments((passages,)), queries, k, rank, BAR, memory)


# weights are multiples of a quarter, so that sums are exact in any order and scores often tie
ROW = st.dictionaries(st.integers(0, WORDS - 1), st.integers(1, 4).map(lambda n: n / 4), max_size=6)


@given(
    st.lists(ROW, min_size=1, max_size=30),
    st.lists(ROW, min_size=1, max_size=5),
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(1, 200),
)
def test_hits_equal_brute_force(
    passages: list[dict[int, float]], queries: list[dict[int, float]], k: int, entries: int, memory: int
) -> None:
    stored, asked = ragged(passages), ragged(queries)
    expected = brute_force(stored, asked, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inverted_index, "SEGMENT_ENTRIES", entries)
        hits = found(stored, asked, k, memory)
    assert same(hits, expected)


@pytest.fixture(scope="module")
def many() -> tuple[RaggedRows, RaggedRows]:
    """More passages than a block holds, with weights whose sums are not exact."""
    random = np.random.default_rng(0)
    sizes = (nearest.sparse.BLOCK_PASSAGES + 500, 20)
    chosen = [random.random((size, WORDS)) < 0.4 for size in sizes]
    rows = []
    for mask in chosen:
        weights = random.random(int(mask.sum()), np.float32) + np.float32(0.01)
        rows.append(RaggedRows(np.cumsum(mask.sum(1)), (np.nonzero(mask)[1].astype(np.int32), weights)))
    return rows[0], rows[1]


@pytest.mark.parametrize("k", [1, 100, 20000])
def test_threads_and_segments_change_no_score(
    many: tuple[RaggedRows, RaggedRows], monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    expected = brute_force(*many, k)
    one = found(*many, k)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setattr(inverted_index, "SEGMENT_ENTRIES", 30_000)
    other = found(*many, k, memory=100_000)
    for hits in (one, other):
        np.testing.assert_array_equal(hits.passages, expected.passages)
        np.testing.assert_allclose(hits.scores, expected.scores, rtol=1e-7)
    np.testing.assert_array_equal(one.scores, other.scores)
