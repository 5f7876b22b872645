"""Errors in what a user gave: one message that says what was found, what is allowed and what to do."""

from __future__ import annotations

from collections.abc import Iterator

MAX_CHARACTERS = 120  # of a value in a message


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
        super().__init__(" ".join((". ".join(part for part in parts if part) + ".").splitlines()))


def short_repr(value: object) -> str:
    """The `repr` of a value, cut if it is long; of lists and dictionaries, only what is shown is visited."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > MAX_CHARACTERS:
            return f"{text[:MAX_CHARACTERS]}..."
    return text


def _pieces(value: object) -> Iterator[str]:
    """The `repr` of a value in pieces: YAML's aliases can make a short list one of billions of values."""
    if type(value) is list:
        yield "["
        for number, each in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(each)
        yield "]"
    elif type(value) is dict:
        yield "{"
        for number, (key, each) in enumerate(value.items()):
            yield f"{', ' if number else ''}{key!r}: "
            yield from _pieces(each)
        yield "}"
    else:
        yield repr(value)
