"""Rows of finished artifacts, picked by number from any shards and joined in any order, in both formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.records import Ragged
from pipeline.storage import ragged_shards, vector_shards
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

LENGTHS = np.array([2, 0, 3, 1, 1, 4, 0, 2, 5])
WORDS = np.arange(LENGTHS.sum(), dtype=np.int32)


def ragged(artifact: Artifact, rows: list[int]) -> list[list[int]]:
    """Two parts, each picked by itself, joined in reverse."""
    half, numbers = len(rows) // 2, np.array(rows)
    parts = [
        ragged_shards.read_some_rows(artifact, numbers[part]) for part in (slice(half), slice(half, None))
    ]
    found = ragged_shards.join_and_order(parts, np.arange(len(rows))[::-1])
    return [row.tolist() for row in np.split(found.columns[0], found.ends[:-1])]


def dense(artifact: Artifact, rows: list[int]) -> list[list[int]]:
    half, numbers = len(rows) // 2, np.array(rows)
    parts = [
        vector_shards.read_some_rows(artifact, numbers[part]) for part in (slice(half), slice(half, None))
    ]
    found: list[list[int]] = vector_shards.join_rows(parts, np.arange(len(rows))[::-1]).tolist()
    return found


@pytest.mark.parametrize("kind", ["ragged", "dense"])
@pytest.mark.parametrize("rows", [[8, 0, 1, 5], [3, 3, 2, 7, 6, 0], list(range(9))])
def test_rows_are_those_with_the_numbers(kind: str, rows: list[int], tmp_path: Path) -> None:
    ends = np.cumsum(LENGTHS)
    expected: list[Any] = [row.tolist() for row in np.split(WORDS, ends[:-1])]
    if kind == "dense":
        expected = [[float(row), 0.5] for row in range(9)]

    def build(draft: Draft) -> Any:
        for start, stop in ((4, 9), (0, 3), (3, 4)):
            if kind == "dense":
                part = np.array(expected[start:stop], np.float32)
                draft.save_array(vector_shards.shard_name(start, stop), part)
                continue
            columns = (np.concatenate([WORDS[:0], *map(np.int32, expected[start:stop])]),)
            ragged_shards.save_rows(draft, start, Ragged(np.cumsum(LENGTHS[start:stop]), columns))
        return {}

    artifact = Store(tmp_path).make(Recipe("passages", {}), build)
    found = (dense if kind == "dense" else ragged)(artifact, rows)
    assert found == [expected[row] for row in rows][::-1]
