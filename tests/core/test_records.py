"""Columns of texts, taken by rows."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core import take_texts

CHUNK = pa.array([f"{row} {'x' * 4000}" for row in range(10_000)])
LARGE = pa.chunked_array([CHUNK] * 60)
"""A column of 2.4 GB, as of the passages of MS MARCO; its chunks share their memory."""


@pytest.mark.parametrize(
    "rows", [[], [0], [5, 10_000, 599_999], [599_999, 3, 20_004, 3], range(9_990, 10_010)]
)
def test_rows_are_taken_in_their_order_from_a_column_above_2_gib(rows: list[int]) -> None:
    taken = take_texts(LARGE, np.array(rows, np.int64)).to_pylist()
    assert taken == [CHUNK[row % 10_000].as_py() for row in rows]


def test_a_column_with_empty_chunks_and_one_without_chunks() -> None:
    column = pa.chunked_array([pa.array([], pa.string()), pa.array(["a", "b"]), pa.array([], pa.string())])
    assert take_texts(column, np.array([1, 0, 1])).to_pylist() == ["b", "a", "b"]
    assert take_texts(pa.chunked_array([], pa.string()), np.array([], np.int64)).to_pylist() == []


@pytest.mark.parametrize("row", [-1, 600_000])
def test_a_row_that_is_not_there_is_an_error(row: int) -> None:
    with pytest.raises(IndexError):
        take_texts(LARGE, np.array([0, row]))
