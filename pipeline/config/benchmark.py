"""The config of one benchmark: its sections together, and its JSON Schema."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import field_validator, model_validator

from pipeline.config.data import SOURCES, DataSettings
from pipeline.config.engine import EngineConfig
from pipeline.config.evaluate import EvaluateConfig
from pipeline.config.index import FLAT, IndexConfig
from pipeline.config.model import BACKENDS, ModelSettings
from pipeline.config.search import SearchConfig
from pipeline.config.settings import HomePath, Section, setting


class Config(Section):
    """The settings of one benchmark."""

    name: str = setting(..., "names the result folder", shapes="")
    data: Annotated[DataSettings, SOURCES] = setting(..., "the collection", shapes="")
    model: Annotated[ModelSettings, BACKENDS] = setting(..., "the encoder", shapes="")
    index: IndexConfig = setting(IndexConfig(), "the index", shapes="")
    search: SearchConfig = setting(SearchConfig(), "the search", shapes="")
    engine: EngineConfig = setting(EngineConfig(), "where the work runs", shapes="")
    evaluate: EvaluateConfig = setting(EvaluateConfig(), "the measures", shapes="")
    cache: HomePath = setting("indexes", "folder of artifacts, relative to the working directory", shapes="")
    output: HomePath = setting("results", "folder of results, relative to the working directory", shapes="")

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", value) or value.strip(".") == "":
            raise ValueError("letters, digits, '.', '_' and '-', and not only dots")
        return value

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        index, search = self.index, self.search
        self.model.check(index, search)
        if search.memory_mb is not None and index.factory != FLAT:
            raise ValueError(
                f"search.memory_mb limits exact search, and index.factory is '{index.factory}', "
                "which is searched whole: leave out one of the two"
            )
        if search.memory_mb is not None and index.shards > 1:
            raise ValueError("search.memory_mb searches without an index: leave out index.shards")
        return self


def json_schema() -> dict[str, Any]:
    """The config as JSON Schema, without the marks of `setting`."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items() if key not in ("shapes", "keyed")}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    stripped: dict[str, Any] = strip(Config.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **stripped}
