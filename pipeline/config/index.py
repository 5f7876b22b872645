"""The section `index`: how vectors are indexed."""

from __future__ import annotations

from typing import Literal

from pipeline.config.settings import Section, setting

FLAT = "Flat"  # the factory whose search is exact


class IndexConfig(Section):
    """How the passages' vectors are indexed."""

    factory: str = setting("Flat", "a faiss index_factory string", shapes="index")
    metric: Literal["inner_product", "cosine", "l2"] = setting(
        "inner_product", "what a score is; for l2 the negated squared distance", shapes="index"
    )
    train_rows: int | None = setting(
        None, "vectors to train the index on; null is 64 per list, at least 65,536", shapes="index", ge=1
    )
    seed: int = setting(0, "seed for drawing the vectors of `train_rows`", shapes="index", ge=0)
    shards: int = setting(
        1, "parts that the passages are cut into, each with an index of its own", shapes="index", ge=1
    )
