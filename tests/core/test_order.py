import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from pipeline import InputError
from pipeline.core import descending_id_rank, sort_hits

SCORES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 1e-45, np.inf, -np.inf, 0.1])
IDS = st.lists(st.text(st.characters(exclude_categories=("Z", "C")), min_size=1), unique=True, max_size=12)


def chunked(ids: list[str], size: int) -> pa.ChunkedArray:
    return pa.chunked_array([ids[i : i + size] for i in range(0, len(ids), size)], type=pa.string())


@given(IDS, st.integers(1, 5))
def test_rank_is_descending_by_bytes(ids: list[str], size: int) -> None:
    expected = {name: rank for rank, name in enumerate(sorted(ids, key=str.encode, reverse=True))}
    assert descending_id_rank(chunked(ids, size)).tolist() == [expected[name] for name in ids]


@settings(max_examples=200)
@given(st.data(), IDS, st.integers(1, 4), st.integers(0, 6))
def test_rows_are_sorted_by_score_then_id(data: st.DataObject, ids: list[str], rows: int, k: int) -> None:
    hits = st.lists(st.integers(0, len(ids) - 1), unique=True, max_size=k) if ids else st.just([])
    passages, scores = np.full((rows, k), -1), np.zeros((rows, k), np.float32)
    expected = []
    for row in range(rows):
        chosen = data.draw(hits)
        places = data.draw(st.permutations(range(k)))[: len(chosen)]
        given_scores = [data.draw(SCORES) for _ in chosen]
        passages[row, places], scores[row, places] = chosen, given_scores
        best = sorted(zip(given_scores, [ids[p].encode() for p in chosen], chosen, strict=True), reverse=True)
        expected.append([p for *_, p in best] + [-1] * (k - len(best)))
    column = chunked(ids, 3)
    for ordered, ordered_scores in (
        sort_hits(passages, scores, descending_id_rank(column)),
        sort_hits(passages, scores, column),
    ):
        assert ordered.tolist() == expected
        assert np.all(ordered_scores[:, 1:] <= ordered_scores[:, :-1])
        assert np.all(ordered_scores[ordered < 0] == -np.inf)
        assert ordered_scores.dtype == np.float32


def test_nan_is_refused() -> None:
    with pytest.raises(InputError, match="query row 1 is NaN"):
        sort_hits(np.array([[0], [1]]), np.array([[1], [np.nan]], np.float32), np.array([0, 1]))
