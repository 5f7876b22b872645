"""The words of a text, as texts are compared by them."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case: runs of letters, digits and underscores."""
    return _WORD.findall(text.lower())
