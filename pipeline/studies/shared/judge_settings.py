"""The section `judge` of a config."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import field_validator

from pipeline.config.settings import setting
from pipeline.config.stages import ChatSettings
from pipeline.core.errors import InputError

PLACES = ("{query}", "{passage}")
"""What a prompt must have once: the places of the two texts. {grades} and {fence} are replaced, too."""


class JudgeSettings(ChatSettings):
    """A chat model that grades passages, or writes questions."""

    backend: Literal["http"] = setting("http", "a server with /chat/completions", shapes="")
    prompt: str | None = setting(
        None, "prompt with {query}, {passage} and optionally {grades}, {fence}; null: the built-in one",
        shapes="",
    )  # fmt: skip
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


def require_judge(config: Any) -> JudgeSettings:
    """The section of a `Config`.

    Raises:
        InputError: It has none.
    """
    judge = judge_of(config)
    if judge is None:
        raise InputError(
            f"{config.name} has no section 'judge'",
            allowed="judge: {backend: http, url: ADDRESS, model: NAME}",
            fix="add it to the config; see docs/judge.md",
        )
    return judge


def judge_of(config: Any) -> JudgeSettings | None:
    """The section of a `Config`, which has it while a study that registers it is there."""
    judge: JudgeSettings | None = config.judge
    return judge
