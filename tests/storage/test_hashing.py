"""The bytes of a user's files: when they are read again."""

from __future__ import annotations

import os
from pathlib import Path

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
