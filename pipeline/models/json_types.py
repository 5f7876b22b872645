"""Types that a JSON file of a model, or one of its fields, must have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple


class JsonType(NamedTuple):
    """A type that a JSON file, or one of its fields, must have: a description and a check."""

    description: str
    accepts: Callable[[Any], bool]


OBJECT = JsonType("a JSON object", lambda value: isinstance(value, dict))
LIST = JsonType("a JSON list", lambda value: isinstance(value, list))
TEXT = JsonType("a text", lambda value: isinstance(value, str))
TEXTS = JsonType("a list of texts", lambda value: isinstance(value, list) and all(map(TEXT.accepts, value)))
INTEGER = JsonType("a whole number", lambda value: type(value) is int)
COUNT = JsonType("a whole number of 0 or more", lambda value: type(value) is int and value >= 0)
SIZE = JsonType("a number of 0 or more", lambda value: type(value) in (int, float) and 0 <= value < math.inf)


def _is_size(value: Any) -> bool:
    """Whether a value is a whole number above 0, or one for each of a network's layers."""
    values = value if isinstance(value, list) else [value]
    return all(type(each) is int and each > 0 for each in values)


POSITIVE = JsonType("a whole number of 1 or more", _is_size)
