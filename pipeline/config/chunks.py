"""The section `data.chunks`: how long passages are cut."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from pipeline.config.index import FLAT, IndexConfig
from pipeline.config.model import ModelSettings
from pipeline.config.search import SearchConfig
from pipeline.config.settings import Section, setting


class ChunkSettings(Section):
    """Parts of passages that are encoded and searched in their place."""

    tokens: int = setting(256, "most tokens of a chunk, without special tokens", shapes="chunks", ge=1)
    overlap: int = setting(32, "most tokens that a chunk repeats of the one before", shapes="chunks", ge=0)
    boundary: Literal["sentence", "token"] = setting(
        "sentence", "where a passage is cut if it can be: between sentences, or words", shapes="chunks"
    )

    @model_validator(mode="after")
    def _moves_on(self) -> Self:
        if self.overlap >= self.tokens:
            raise ValueError(
                f"data.chunks.overlap is {self.overlap:,}, and data.chunks.tokens {self.tokens:,}: "
                "lower the first or raise the second"
            )
        return self


def check_chunks(
    chunks: ChunkSettings | None, model: ModelSettings, index: IndexConfig, search: SearchConfig
) -> None:
    """Raise ValueError for settings of other sections that do not go with chunks, or not without them."""
    if chunks is None:
        if search.aggregate != "max":
            raise ValueError(
                f"search.aggregate: {search.aggregate} is for passages that are cut: "
                "leave it out, or set data.chunks"
            )
        return
    if not model.cuts_texts:
        raise ValueError(
            f"backend '{model.backend}' has no tokenizer to cut passages with: leave out data.chunks, "
            "or give a collection whose passages are the chunks"
        )
    if index.shards > 1:
        raise ValueError("data.chunks are searched in one index: leave out index.shards")
    if search.aggregate == "mean" and index.factory != FLAT:
        raise ValueError(
            f"search.aggregate: mean takes the score of every chunk, and index.factory '{index.factory}' "
            "finds only some: choose max or first, or the factory Flat"
        )
