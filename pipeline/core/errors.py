"""Errors in what a user gave: one message that says what was found, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pipeline.core.display import visible

MAX_CHARACTERS = 120  # of a value in a message
MEMORY_FULL = (
    "MemoryError", "bad_alloc", "can't allocate memory", "Cannot allocate memory", "can't start new thread",
    "failed to map segment",
)  # fmt: skip
"""In the errors of libraries for which the memory is too small."""
PATHS_START = "paths start from the config file's folder, or without one from the current folder"


class InputError(Exception):
    """Bad input: a config, a file, an argument. The command line exits with code 2.

    Args:
        found: What is wrong and where (file and line, or key), without a final full stop.
        allowed: What would have been accepted.
        fix: What to do about it, in the imperative, without a final full stop.
    """

    def __init__(self, found: str, *, allowed: str = "", fix: str = "") -> None:
        self.found, self.allowed, self.fix = found, allowed, fix
        parts = [found, f"Allowed: {allowed}" if allowed else "", fix[:1].upper() + fix[1:]]
        message = ". ".join(part for part in parts if part) + "."
        super().__init__(visible(" ".join(message.splitlines())))  # in one line

    def __reduce__(self) -> tuple[Callable[..., InputError], tuple[str]]:
        """Pickle it with its keywords, for errors of other processes."""
        return partial(InputError, allowed=self.allowed, fix=self.fix), (self.found,)


def did_you_mean(word: object, options: Iterable[str], otherwise: str) -> str:
    """The fix for a name that is not known: the option most like it; `otherwise` if none is close."""
    near = difflib.get_close_matches(word, list(options), 1) if isinstance(word, str) else []
    return f"did you mean '{near[0]}'" if near else otherwise


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def memory_ran_out(error: BaseException) -> bool:
    """Whether an error, or one that led to it, is that the memory ran out."""
    return any(
        isinstance(each, MemoryError) or any(words in str(each) for words in MEMORY_FULL)
        for each in causes(error)
    )


def short_repr(value: object) -> str:
    """The `repr` of a value, cut if it is long."""
    text = repr(value[: MAX_CHARACTERS + 1] if isinstance(value, str | bytes) else value)
    return f"{text[:MAX_CHARACTERS]}..." if len(text) > MAX_CHARACTERS else text
