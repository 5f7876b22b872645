"""The section `engine`: where the work runs."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import field_validator, model_validator

from pipeline.config.settings import Section, setting


class EngineConfig(Section):
    """Where shards of the work run."""

    kind: Literal["local", "ray"] = setting("local", "this process, or workers on a Ray cluster", shapes="")
    address: str | None = setting(
        None, "ray only: a cluster's address; null starts one on this machine", shapes=""
    )
    workers: int | None = setting(
        None, "ray only: how many; null is one per GPU, or one per machine without GPUs", shapes="", ge=1
    )

    @field_validator("address")
    @classmethod
    def _reachable(cls, value: str | None) -> str | None:
        if value not in (None, "auto") and not re.fullmatch(r"[^\s/:]+:\d{1,5}", value):
            raise ValueError("null, auto or HOST:PORT")
        return value

    @model_validator(mode="after")
    def _fits_kind(self) -> EngineConfig:
        for name in ("address", "workers"):
            if self.kind == "local" and getattr(self, name) is not None:
                raise ValueError(f"engine.{name} is for kind 'ray': leave it out")
        return self
