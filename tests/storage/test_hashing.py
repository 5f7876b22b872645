"""The bytes of a user's files: when they are read again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from pipeline.storage import hashing


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose bytes were read for a hash."""
    names: list[str] = []
    hash_file = hashing.hash_file
    monkeypatch.setattr(hashing, "hash_file", lambda path: names.append(path.name) or hash_file(path))
    return names


def test_a_file_is_read_again_if_it_was_written_since(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "SETTLED", 0)
    monkeypatch.setattr(hashing, "SMALL", 0)
    path, other = tmp_path / "file", tmp_path / "other"
    path.write_bytes(b"one")
    other.write_bytes(b"two")
    first = hashing.hash_user_file(path)
    assert hashing.hash_user_file(path) == first
    assert read == ["file"]
    os.replace(other, path)
    second = hashing.hash_user_file(path)
    path.write_bytes(b"three")
    assert len({first, second, hashing.hash_user_file(path)}) == 3


def test_a_file_written_just_now_is_read_each_time(tmp_path: Path, read: list[str]) -> None:
    """The clock of its file system may give the next write the same time."""
    path = tmp_path / "file"
    path.write_bytes(b"one")
    assert hashing.hash_user_file(path) == hashing.hash_user_file(path)
    assert read == ["file", "file"]


@pytest.mark.parametrize("small", [0, 1 << 20])
@pytest.mark.parametrize("folder", ["", "/dev/shm"])
def test_a_file_written_through_memory_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int, folder: str
) -> None:
    """Its times stay as they are while a page waits to be written; in a file system of memory, for ever."""
    monkeypatch.setattr(hashing, "SETTLED", 0)
    monkeypatch.setattr(hashing, "SMALL", small)
    with tempfile.TemporaryDirectory(dir=folder or tmp_path) as temporary:
        path = Path(temporary) / "p.npy"
        np.save(path, np.zeros((4096, 32), np.float32))
        mapped = np.load(path, mmap_mode="r+")
        mapped[:] = 1
        before = hashing.hash_user_file(path), hashing.hash_blocks(path)
        mapped[:] = 2
        after = hashing.hash_user_file(path), hashing.hash_blocks(path)
        assert before[0] != after[0] == hashing.hash_file(path)
        assert before[1] != after[1]
        assert hashing.same_blocks(path.read_bytes(), 0, after[1])
        assert not hashing.same_blocks(path.read_bytes(), 0, before[1])


def test_a_large_file_that_stays_as_it_is_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    monkeypatch.setattr(hashing, "SETTLED", 0)
    monkeypatch.setattr(hashing, "SMALL", 0)
    path = tmp_path / "p.npy"
    np.save(path, np.arange(10_000.0))
    mapped = np.load(path, mmap_mode="r+")
    mapped[:] = 1
    assert len({hashing.hash_user_file(path) for _ in range(3)}) == 1
    assert read == ["p.npy"]
