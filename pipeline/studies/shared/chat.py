"""One answer of a served chat model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.core.records import JsonObject
from pipeline.encoders.batching import ServerUse
from pipeline.encoders.http.client import Client

MOST_CHARACTERS = 20_000
"""Of an answer: no grade and no question is longer, and what follows is neither read nor sent back."""


def fence_of(*texts: str) -> str:
    """Equals signs that no text holds, so that none can end the part of a prompt in which it stands."""
    fence = "=" * 8
    while any(fence in text for text in texts):
        fence += "="
    return fence


async def chat(client: Client, model: str, messages: Sequence[JsonObject]) -> str:
    """The text that a chat model answers to some messages at temperature 0; empty where it gives none.

    Raises:
        TooLargeError: The messages have to be made smaller.
        InputError: The server refuses, cannot be reached, or answers as no chat server does.
    """
    body: JsonObject = {"model": model, "temperature": 0, "messages": [*messages]}
    answer, _seconds = await client.post("/chat/completions", body, ServerUse())
    if not isinstance(answer, Mapping) or not isinstance(answer.get("choices"), list):
        raise client.bad_answer("no JSON with a list 'choices', as a chat server does")
    first = answer["choices"][0] if answer["choices"] else None
    message = first.get("message") if isinstance(first, Mapping) else None
    text = message.get("content") if isinstance(message, Mapping) else None
    return text[:MOST_CHARACTERS] if isinstance(text, str) else ""
