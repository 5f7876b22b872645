"""What servers answer, checked: vectors from `/embeddings`, scores from `/rerank`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.core.display import counted
from pipeline.core.errors import short_repr
from pipeline.core.records import Float32

Refuse = Callable[[str], Exception]
"""Makes the error for an answer, from what it is, such as `Client.bad_answer`."""


def vectors_of(answer: Any, texts: int, dimension: int | None, refuse: Refuse) -> Float32:
    """The vectors of an answer to a request for those of some texts, float32 [texts, dimension].

    They come as lists of numbers or as base64 of float32, in any order, numbered by their `index`.

    Args:
        answer: JSON.
        texts: How many texts were sent.
        dimension: What every vector must have; None if it is not known yet.
        refuse: Makes the error that is raised if the answer is anything else.
    """
    rows = _in_order(_items(answer, "data", refuse), texts, "vectors", "texts", refuse)
    vectors = [_vector(row.get("embedding"), refuse) for row in rows]
    dimensions = {len(vector) for vector in vectors} | ({dimension} if dimension else set())
    if len(dimensions) > 1:
        found = " and ".join(f"{each:,}" for each in sorted(dimensions))
        expected = f", and {dimension:,} are expected" if dimension else ""
        raise refuse(f"vectors of {found} dimensions{expected}")
    joined = np.stack(vectors, dtype=np.float32)
    if not np.isfinite(joined).all():
        raise refuse("a vector that holds NaN or infinity")
    if not joined.any(axis=1).all():
        raise refuse("a vector of length 0, which has no direction")
    return joined


def scores_of(answer: Any, passages: int, refuse: Refuse) -> Float32:
    """The scores of an answer to a request for those of some passages, float32 [passages]; see `vectors_of`.

    They are in `results` as `relevance_score` (Cohere, Jina, vLLM, Infinity), or a bare list of `score`s
    (TEI).
    """
    items = answer if isinstance(answer, list) else _items(answer, "results", refuse)
    rows = _in_order(items, passages, "scores", "passages", refuse)
    found = [row.get("relevance_score", row.get("score")) for row in rows]
    if not all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in found):
        raise refuse(f"a score that is no number: {short_repr(rows[0])}")
    scores = np.array(found, np.float32)
    if not np.isfinite(scores).all():
        raise refuse("a score that is NaN or infinite")
    return scores


def tokens_of(answer: Any) -> int | None:
    """The number of tokens that a server counted in a request; None if it does not say."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    counts = (usage.get(name) for name in ("prompt_tokens", "total_tokens", "input_tokens"))
    return next((each for each in counts if isinstance(each, int) and each > 0), None)


def _items(answer: Any, name: str, refuse: Refuse) -> list[Any]:
    """The list in an answer."""
    if not isinstance(answer, Mapping):
        raise refuse(f"what is no JSON of {'vectors' if name == 'data' else 'scores'}: {short_repr(answer)}")
    if not isinstance(answer.get(name), list):
        raise refuse(f"JSON without a list '{name}': {short_repr(dict(answer))}")
    items: list[Any] = answer[name]
    return items


def _in_order(
    items: list[Any], count: int, what: str, asked: str, refuse: Refuse
) -> Sequence[Mapping[str, Any]]:
    """The items by their `index`, which must be 0 to `count` - 1, each once; without any, as they come."""
    if len(items) != count:
        raise refuse(f"{counted(len(items), what[:-1])} for {counted(count, asked[:-1])}")
    if not all(isinstance(item, Mapping) for item in items):
        raise refuse(f"{what} that are no JSON objects")
    numbers = [item.get("index") for item in items]
    if all(number is None for number in numbers):
        return items
    if sorted(number for number in numbers if isinstance(number, int)) != list(range(count)):
        raise refuse(f"{what} that are not numbered from 0 to {count - 1}, each once")
    return sorted(items, key=lambda item: item["index"])


def _vector(given: Any, refuse: Refuse) -> Float32:
    """A vector, float32 [dimension], from a list of numbers or base64 of little-endian float32."""
    vector: Float32
    try:
        if isinstance(given, str):
            vector = np.frombuffer(base64.b64decode(given, validate=True), "<f4")
        else:
            with np.errstate(over="ignore"):  # infinite numbers are refused after it
                vector = np.array(given, np.float64).astype(np.float32)
    except (binascii.Error, ValueError, TypeError, OverflowError):
        vector = np.empty(0, np.float32)
    if vector.ndim != 1 or not len(vector):
        raise refuse(f"what is no vector: {short_repr(given)}")
    return vector
