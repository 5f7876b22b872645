"""Shards of rows: which are missing, how they are read, what is refused."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pipeline import InputError, storage
from pipeline.core import Embeddings, RaggedRows, VectorForm


@given(st.integers(0, 200), st.integers(1, 60), st.integers(1, 60), st.sets(st.integers(0, 10)))
def test_missing_and_whole_shards_cover_every_row_once(
    rows: int, size: int, other: int, kept: set[int]
) -> None:
    earlier = storage.missing_ranges(rows, other, [])
    whole = [span for number, span in enumerate(earlier) if number in kept]
    made = storage.missing_ranges(rows, size, [storage.shard_name(*span) for span in whole])
    covered = sorted(whole + made)
    assert [row for start, stop in covered for row in range(start, stop)] == list(range(rows))
    assert all(stop - start <= size for start, stop in made)


SHARDS = st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any)


@given(SHARDS, st.data())
def test_rows_are_read_and_picked_across_shards(sizes: list[int], data: st.DataObject) -> None:
    rows = np.arange(3 * sum(sizes), dtype=np.float16).reshape(-1, 3)
    edges = np.cumsum(sizes)[:-1]
    kinds = (np.float16, np.float32)
    embeddings = Embeddings(
        tuple(shard.astype(kinds[number % 2]) for number, shard in enumerate(np.split(rows, edges)))
    )
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    some = np.array(sorted(data.draw(st.lists(st.integers(0, len(rows) - 1)))), np.int64)
    read, picked = (
        storage.read_rows(embeddings, start, stop),
        storage.gather_rows(embeddings, some),
    )
    assert read.dtype == picked.dtype == np.float32
    assert (read == rows[start:stop]).all()
    assert (picked == rows[some]).all()


def test_a_component_too_large_for_fp16_is_refused() -> None:
    rows = np.float32([[1, 2]] * 40 + [[3, 70_000]])
    halves = Embeddings((rows,), VectorForm(halves=True))
    assert (storage.read_rows(halves, 0, 40) == rows[:40]).all()
    with pytest.raises(InputError, match=r"from row 40 on has a component of 7e\+04"):
        storage.read_rows(halves, 40, 41)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.data())
def test_rows_of_any_length_are_picked_by_number_and_joined_in_any_order(
    tmp_path: Path, lengths: list[int], data: st.DataObject
) -> None:
    """From three shards, in two parts."""
    words = np.arange(sum(lengths), dtype=np.int32)
    rows = np.split(words, np.cumsum(lengths)[:-1])
    numbers = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=2, max_size=9)), np.int64)
    order = np.array(data.draw(st.permutations(range(len(numbers)))), np.int64)

    def build(draft: storage.Draft) -> dict[str, Any]:
        for start, stop in storage.split_evenly(len(rows), 3):
            columns = (np.concatenate(rows[start:stop]),)
            storage.save_shard(draft, start, stop, RaggedRows(np.cumsum(lengths[start:stop]), columns))
        return {}

    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        artifact = storage.Store(Path(folder)).make(storage.Recipe("passages", {}), build)
        parts = [storage.read_some_rows(artifact, part) for part in np.array_split(numbers, 2)]
        found = storage.take_rows(storage.join_rows(parts), order)
    assert [row.tolist() for row in np.split(found.columns[0], found.ends[:-1])] == [
        rows[row].tolist() for row in numbers[order]
    ]
