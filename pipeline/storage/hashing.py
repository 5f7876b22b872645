"""Checksums: of JSON values, which become keys, and of files."""

from __future__ import annotations

import hashlib
import json
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError

SETTLED = 2 * 10**9  # nanoseconds after which a later write is sure to get another time from any file system


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def hash_json(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, as hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_user_file(path: Path) -> str:
    """SHA-256 of a user's file, as hex; a second call reads it again only if it was written since."""
    try:
        with open(path, "rb") as file:  # opening makes a network file system ask its server for the times
            now = os.fstat(file.fileno())
        if time.time_ns() - now.st_ctime_ns < SETTLED:
            return hash_file(path)
        return _hash_settled(path, (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns))
    except OSError as error:
        found = f"{path}: cannot be read: {error.strerror}"
        raise InputError(found, fix="check the file and its permissions") from None


@cache
def _hash_settled(path: Path, stamp: tuple[int, ...]) -> str:
    """The hash of a file with the device, inode, size and times `stamp`; the next write changes the stamp."""
    return hash_file(path)


def file_changed(what: str) -> InputError:
    """The error for a user's files whose hash differs from the one at the start of this run."""
    return InputError(
        f"{what} was changed after this run had looked at it",
        allowed="files that stay as they are while a run reads them",
        fix="run again",
    )
