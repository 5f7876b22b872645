"""The table of texts beside an artifact's rows: a text is found by its hash, and no other is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.retrievers.rows import find_rows, hash_texts, table_of


def hashes_of(texts: list[str]) -> np.ndarray:
    return hash_texts(pa.chunked_array([pa.array(texts[:3], pa.string()), pa.array(texts[3:], pa.string())]))


def test_a_hash_is_that_of_the_text_s_bytes() -> None:
    """BLAKE2b of 16 bytes, as `b2sum -l 128` prints it for an empty file."""
    (empty,) = hashes_of([""])
    assert f"{empty[0]:016x}{empty[1]:016x}" == "cae66941d9efbd404e4d88758ea67670"


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)))
def test_every_text_is_found_in_a_row_that_has_it(kept: list[str], wanted: list[str]) -> None:
    found = find_rows(table_of(hashes_of(kept)), hashes_of(wanted)).tolist()
    assert [kept[row] if row >= 0 else None for row in found] == [
        text if text in kept else None for text in wanted
    ]


def test_texts_whose_hashes_begin_alike_are_told_apart(tmp_path: Path) -> None:
    hashes = np.array([[7, 3], [7, 1], [9, 1], [7, 2]], np.uint64)
    np.save(tmp_path / "t.npy", table_of(hashes))
    wanted = np.array([[7, 2], [9, 1], [7, 4], [8, 1], [7, 3], [9, 2], [7, 1]], np.uint64)
    found = find_rows(np.load(tmp_path / "t.npy", mmap_mode="r"), wanted)
    assert found.tolist() == [3, 2, -1, -1, 0, -1, 1]
