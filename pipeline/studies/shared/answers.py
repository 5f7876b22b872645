"""A log of answers that cost time or money, below the cache: a line of JSON each, kept at once.

A killed run loses the answers that it was waiting for, and no others. Where a line was cut, the rest is read.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Self

from pipeline.core.errors import InputError
from pipeline.storage.store import hold


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
        self._opened = contextlib.ExitStack()
        self._file: IO[bytes] | None = None
        self.answers: dict[str, Any] = {}
        if write:
            if lock := hold(path, create=True):
                self._opened.callback(lock.release)
            self._file = self._opened.enter_context(path.open("r+b"))
        content = path.read_bytes() if path.is_file() else b""
        end = content.rfind(b"\n") + 1
        for number, line in enumerate(content[:end].splitlines(), 1):
            try:
                record = json.loads(line)
                key, answer = record["key"], record["answer"]
                valid = isinstance(key, str) and is_answer(answer)
            except (ValueError, TypeError, KeyError, RecursionError):
                valid = False
            if not valid:
                raise InputError(
                    f"{path}, line {number}, is no stored answer",
                    allowed="lines that this program wrote",
                    fix="remove the line; it is asked again",
                )
            self.answers[key] = answer
        if self._file:  # a line that a killed run left unfinished is cut off
            self._file.truncate(end)
            self._file.seek(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def add(self, key: str, answer: object) -> None:
        """Store an answer."""
        assert self._file
        self.answers[key] = answer
        self._file.write(json.dumps({"key": key, "answer": answer}).encode() + b"\n")
        self._file.flush()
