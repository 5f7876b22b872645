"""A log of answers that cost time or money, below the cache: a line of JSON each, kept at once.

A killed run loses the answers that it was waiting for, and no others. Where a line was cut, the rest is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Self

from pipeline.core.errors import InputError
from pipeline.storage import locks


class AnswerLog:
    """The answers to the requests of one kind, by key.

    Args:
        path: Its file.
        is_answer: Tells whether a stored value is an answer of this kind.
        write: Whether answers are to be added; another process that does so is waited for.

    Raises:
        InputError: A stored line is no answer of this kind.
    """

    def __init__(self, path: Path, is_answer: Callable[[Any], bool], write: bool = True) -> None:
        self.path = path
        self._is_answer = is_answer
        self._lock: locks.Lock | None = None
        self._file: IO[bytes] | None = None
        self.answers: dict[str, Any] = {}
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = locks.hold(path, create=True)
            self._file = path.open("r+b")
        self._read()

    def _read(self) -> None:
        """Read all whole lines, and cut off one that a killed run left unfinished."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        end = content.rfind(b"\n") + 1
        for number, line in enumerate(content[:end].splitlines(), 1):
            try:
                record = json.loads(line)
                key, answer = record["key"], record["answer"]
                valid = isinstance(key, str) and self._is_answer(answer)
            except (ValueError, TypeError, KeyError, RecursionError):
                valid = False
            if not valid:
                raise InputError(
                    f"{self.path}, line {number}, is no stored answer",
                    allowed="lines that this program wrote",
                    fix="remove the line; it is asked again",
                )
            self.answers[key] = answer
        if self._file:
            self._file.truncate(end)
            self._file.seek(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()
        if self._lock:
            self._lock.release()

    def add(self, key: str, answer: object) -> None:
        """Store an answer."""
        assert self._file
        self.answers[key] = answer
        self._file.write(json.dumps({"key": key, "answer": answer}).encode() + b"\n")
        self._file.flush()
