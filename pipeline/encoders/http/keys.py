"""Whether a text has a part of a key in it, also written backwards, spaced or encoded."""

from __future__ import annotations

import base64
import codecs
import html
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

PART = 8  # characters in a row that a text may not share with the key
STRIDES = (1, 2, 3, 4)
"""Every so many characters of a text are looked at: a key may be written with others between."""


def holds_key(text: str, key: str) -> bool:
    """Whether `PART` characters of the key in a row stand in the text in any form that `FORMS` knows.

    Case and everything but letters and digits is left out of the comparison, so that spaces, line breaks and
    quotation marks hide nothing. A key that is shorter is looked for as a whole.
    """
    variants = {_plain(each) for each in (text, unquote(text), html.unescape(text), _unescaped(text))}
    spaced = {variant[start::step] for variant in variants for step in STRIDES for start in range(step)}
    read = spaced | {variant[::-1] for variant in spaced}
    parts = {part for form in FORMS for part in form(key)}
    return any(part in variant for part in parts for variant in read)


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _unescaped(text: str) -> str:
    r"""The text with `\u0041` and `\x41` as the characters that they stand for."""
    return re.sub(r"\\(?:u|x)([0-9a-fA-F]{2,4})", lambda escape: chr(int(escape[1], 16)), text)


def _windows(text: str, length: int) -> Iterator[str]:
    text = _plain(text)
    length = min(length, len(text))
    yield from (text[start : start + length] for start in range(len(text) - length + 1)) if length else ()


def _written(convert: Callable[[str], str], longer: float = 1) -> Callable[[str], Iterator[str]]:
    """The parts of a key in a form that makes a text so many times longer."""
    return lambda key: _windows(convert(key), int(PART * longer))


def _in_base(encode: Callable[[bytes], bytes], block: int, longer: float) -> Callable[[str], Iterator[str]]:
    """The parts of a key in base64 or base32, wherever in a block of bytes it begins."""

    def parts(key: str) -> Iterator[str]:
        for before in range(block):
            text = encode(b" " * before + key.encode()).decode().rstrip("=")
            # the first characters and the last one have bits of what is beside the key
            inside = text[-(-before * len(text) // (before + len(key))) : -1]
            yield from _windows(inside, int(PART * longer) - 1)

    return parts


FORMS = (
    _written(str),
    _written(lambda key: codecs.encode(key, "rot13")),
    _written(lambda key: key.encode().hex(), 2),
    _written(lambda key: "".join(str(ord(character)) for character in key), 2.5),
    _written(lambda key: "".join(f"x{ord(character):x}" for character in key), 3),
    _in_base(base64.b64encode, 3, 4 / 3),
    _in_base(base64.urlsafe_b64encode, 3, 4 / 3),
    _in_base(base64.b32encode, 5, 8 / 5),
)
"""What writes a key in other characters, and gives the parts to look for."""
