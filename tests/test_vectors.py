"""Shards of vectors: which are missing, how they are opened, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import vectors
from pipeline.artifacts import Recipe, Store
from pipeline.errors import InputError


def name(start: int, stop: int) -> str:
    return f"rows-{start:010d}-{stop:010d}.npy"


@given(st.integers(0, 200), st.integers(1, 60), st.integers(1, 60), st.sets(st.integers(0, 10)))
def test_missing_and_whole_shards_cover_every_row_once(
    rows: int, size: int, other: int, kept: set[int]
) -> None:
    earlier = vectors.missing(rows, other, [])
    whole = [span for number, span in enumerate(earlier) if number in kept]
    made = vectors.missing(rows, size, [name(*span) for span in whole])
    covered = sorted(whole + made)
    assert [row for start, stop in covered for row in range(start, stop)] == list(range(rows))
    assert all(stop - start <= size for start, stop in made)


def test_shards_open_in_order_of_their_rows(tmp_path: Path) -> None:
    all_rows = np.arange(50, dtype=np.float32).reshape(25, 2)

    def build(draft):  # type: ignore[no-untyped-def]
        for start in (20, 0, 10):
            vectors.write(draft, start, all_rows[start : start + 10])
        return {}, {}

    artifact, _ = Store(tmp_path).make(Recipe("passages", {}), build)
    opened = vectors.open_embeddings(artifact)
    assert (np.concatenate(opened.shards) == all_rows).all()
    assert (len(opened), opened.dimension) == (25, 2)
    assert all(isinstance(shard, np.memmap) for shard in opened.shards)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_refused_by_id(bad: float) -> None:
    rows = np.eye(3, dtype=np.float32)
    rows[1, 2] = bad
    with pytest.raises(InputError, match="'b' holds NaN or infinity; 1 of 3"):
        vectors.check(rows, ["a", "b", "c"], normalized=False)


def test_vectors_that_are_not_normalized_are_refused_where_they_should_be() -> None:
    rows = np.eye(3, dtype=np.float32) * np.float32([[1], [1], [2]])
    vectors.check(rows, "abc", normalized=False)
    with pytest.raises(InputError, match=r"'c' has length 2 where model\.normalize says 1"):
        vectors.check(rows, "abc", normalized=True)
