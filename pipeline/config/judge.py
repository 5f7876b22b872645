"""The section `judge`: a served model that grades passages for queries."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import field_validator

from pipeline.config.settings import setting
from pipeline.config.stages import ServerSettings, ServerUrl

PLACES = ("{query}", "{passage}")
"""What a prompt must have once: the places of the two texts. {grades} is replaced, too."""


class JudgeSettings(ServerSettings):
    """A chat model that grades passages for `benchmarco judge`."""

    backend: Literal["http"] = setting("http", "a server with /chat/completions", shapes="")
    url: ServerUrl = setting(..., "server address, without /chat/completions", shapes="", repr=False)
    model: str = setting(..., "model name on the server", shapes="", min_length=1)
    prompt: str | None = setting(
        None, "prompt with {query}, {passage} and optionally {grades}; null: the built-in one", shapes=""
    )
    grades: tuple[int, ...] = setting(
        (0, 1, 2, 3), "allowed grades, ascending from 0", shapes="", min_length=2, strict=False
    )
    repeats: int = setting(1, "requests per pair; the median counts", shapes="", ge=1, le=99)
    price: float | None = setting(
        None, "price per million tokens, in any currency", shapes="", ge=0, strict=False
    )

    @field_validator("prompt")
    @classmethod
    def _has_places(cls, value: str | None) -> str | None:
        if value is not None and any(len(re.findall(re.escape(place), value)) != 1 for place in PLACES):
            raise ValueError("a text that has {query} and {passage}, each once")
        return value

    @field_validator("grades")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if value[0] != 0 or list(value) != sorted(set(value)) or value[-1] > 100:
            raise ValueError("whole numbers from 0 on, ascending, 100 at most, such as [0, 1, 2, 3]")
        return value
