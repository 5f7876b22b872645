"""Shards of vectors: which are missing, how they are opened, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import InputError
from pipeline.core.records import Embeddings, VectorForm
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store


def name(start: int, stop: int) -> str:
    return f"rows-{start:010d}-{stop:010d}.npy"


@given(st.integers(0, 200), st.integers(1, 60), st.integers(1, 60), st.sets(st.integers(0, 10)))
def test_missing_and_whole_shards_cover_every_row_once(
    rows: int, size: int, other: int, kept: set[int]
) -> None:
    earlier = vector_shards.missing_ranges(rows, other, [])
    whole = [span for number, span in enumerate(earlier) if number in kept]
    made = vector_shards.missing_ranges(rows, size, [name(*span) for span in whole])
    covered = sorted(whole + made)
    assert [row for start, stop in covered for row in range(start, stop)] == list(range(rows))
    assert all(stop - start <= size for start, stop in made)


def test_shards_open_in_order_of_their_rows(tmp_path: Path, write_shard: Callable[..., None]) -> None:
    all_rows = np.arange(50, dtype=np.float32).reshape(25, 2)

    def build(draft):  # type: ignore[no-untyped-def]
        for start in (20, 0, 10):
            write_shard(draft, start, all_rows[start : start + 10])
        return {}

    artifact = Store(tmp_path).make(Recipe("passages", {}), build)
    opened = vector_shards.open_embeddings(artifact)
    assert (np.concatenate(opened.shards) == all_rows).all()
    assert (vector_shards.read_all_rows(artifact) == all_rows).all()
    assert (len(opened), opened.dimension) == (25, 2)
    assert all(isinstance(shard, np.memmap) for shard in opened.shards)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_refused_by_id(bad: float) -> None:
    rows = np.eye(3, dtype=np.float32)
    rows[1, 2] = bad
    with pytest.raises(InputError, match=r"'b' holds NaN or infinity; 1 of 3"):
        vector_shards.check_vectors(rows, ["a", "b", "c"], normalized=False)


def test_vectors_that_are_not_normalized_are_refused_where_they_should_be() -> None:
    rows = np.eye(3, dtype=np.float32) * np.float32([[1], [1], [2]])
    vector_shards.check_vectors(rows, "abc", normalized=False)
    with pytest.raises(InputError, match=r"'c' has length 2, and with model\.normalize it should be 1"):
        vector_shards.check_vectors(rows, "abc", normalized=True)


def test_vectors_whose_scores_overflow_are_refused() -> None:
    rows = np.eye(3, dtype=np.float32) * np.float32([[1], [4e18], [5e18]])
    vector_shards.check_vectors(rows[:2], "ab", normalized=False)
    with pytest.raises(InputError, match=r"'c' is longer than 4\.6e\+18, so that scores would overflow; 1"):
        vector_shards.check_vectors(rows, "abc", normalized=False)


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
        vector_shards.read_rows(embeddings, start, stop),
        vector_shards.gather_rows(embeddings, some),
    )
    assert read.dtype == picked.dtype == np.float32
    assert (read == rows[start:stop]).all()
    assert (picked == rows[some]).all()


def test_rows_let_go_are_read_again(tmp_path: Path) -> None:
    rows = np.arange(60_000, dtype=np.float32).reshape(-1, 3)
    np.save(tmp_path / "rows.npy", rows)
    embeddings = Embeddings((np.load(tmp_path / "rows.npy", mmap_mode="r"),))
    assert (vector_shards.read_rows(embeddings, 0, 20_000) == rows).all()
    vector_shards.release_memory(embeddings, 5, 19_000)
    assert (vector_shards.read_rows(embeddings, 0, 20_000) == rows).all()


def test_a_component_too_large_for_fp16_is_refused() -> None:
    rows = np.float32([[1, 2]] * 40 + [[3, 70_000]])
    halves = Embeddings((rows,), VectorForm(halves=True))
    assert (vector_shards.read_rows(halves, 0, 40) == rows[:40]).all()
    with pytest.raises(InputError, match=r"from row 40 on has a component of 7e\+04"):
        vector_shards.read_rows(halves, 40, 41)
