"""What lies on disk: the same content hash however rows are batched, and what was written comes back."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.records import Qrels
from pipeline.data.collection_files import TextsHash, TextsWriter, blank, open_texts, write_qrels
from pipeline.formats.texts import BATCH_ROWS, Batch

ROWS = st.lists(st.tuples(st.text(), st.text()), max_size=12)


def arrays(rows):
    return [pa.array([row[column] for row in rows], pa.string()) for column in range(2)]


def hashed(*parts):
    content = TextsHash()
    for part in parts:
        content.update(*part)
    return content.hexdigest()


@given(ROWS, st.integers(0, 12))
def test_hash_does_not_depend_on_batches(rows, cut):
    ids, texts = arrays(rows)
    whole = hashed((ids, texts))
    assert hashed(arrays(rows[:cut]), arrays(rows[cut:])) == whole
    assert hashed((ids[:cut], texts[:cut]), (ids[cut:], texts[cut:])) == whole  # slices share buffers


@given(ROWS, ROWS)
def test_hash_tells_collections_apart(one, other):
    assert (hashed(arrays(one)) == hashed(arrays(other))) == (one == other)


def test_hash_by_hand():
    def sha(data):
        return hashlib.sha256(data).digest()

    lengths = np.array([1, 2], "<i4").tobytes(), np.array([2, 0], "<i4").tobytes()
    parts = sha(lengths[0]) + sha(b"abc") + sha(lengths[1]) + sha("é".encode())
    assert hashed(arrays([("a", "é"), ("bc", "")])) == hashlib.sha256(parts).hexdigest()


@given(st.lists(ROWS, max_size=5))
def test_rows_come_back(tmp_path, parts):
    path = tmp_path / "texts.arrow"
    with TextsWriter(path) as writer:
        for part in parts:
            writer.write(*arrays(part))
    rows = [row for part in parts for row in part]
    found = open_texts(path)
    assert list(zip(found.ids.to_pylist(), found.texts.to_pylist(), strict=True)) == rows
    assert writer.content() == hashed(arrays(rows))


def test_record_batches_have_one_size(tmp_path):
    with TextsWriter(tmp_path / "texts.arrow") as writer:
        for start in range(0, 20_000, 5_000):
            writer.write(*arrays([(str(row), "text") for row in range(start, start + 5_000)]))
    sizes = [len(chunk) for chunk in open_texts(tmp_path / "texts.arrow").ids.chunks]
    assert sizes == [BATCH_ROWS, BATCH_ROWS, 20_000 - 2 * BATCH_ROWS]


def test_qrels_are_rows_and_grades(tmp_path):
    rows = np.array([0, 0, 1]), np.array([3, 5, 2]), np.array([1, -1, 2])
    digest = write_qrels(tmp_path / "qrels", Qrels(*rows))
    stored = np.load(tmp_path / "qrels")
    assert stored.tolist() == [[0, 0, 1], [3, 5, 2], [1, -1, 2]]
    assert digest == hashlib.sha256(stored.astype("<i8").tobytes()).hexdigest()


def test_blank_texts_are_counted():
    assert blank(pa.array(["", " ", "\t\n", "a", " a"])) == 3


def test_title_and_text_are_joined_by_a_space():
    titles, texts = pa.array(["t", "", "t", ""]), pa.array(["x", "x", "", ""])
    batch = Batch(texts, texts, titles, "file", "line", range(4), 0)
    assert batch.joined().to_pylist() == ["t x", "x", "t", ""]
    assert batch.titled() == 2
