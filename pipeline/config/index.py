"""The section `index`: how vectors are indexed."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import field_validator, model_validator

from pipeline.config.settings import Section, setting

FLAT = "Flat"  # the factory whose search is exact
PLAID = "PLAID"  # the factory of the only index of token vectors


class PlaidSettings(Section):
    """How fast-plaid makes an index of token vectors; the defaults are its own."""

    bits: Literal[1, 2, 4, 8] = setting(
        4, "bits kept of each number of a token vector, besides the number of its centroid", shapes="index"
    )
    kmeans_iterations: int = setting(
        4, "iterations of k-means, by which the centroids are found", shapes="index", ge=1
    )
    seed: int = setting(42, "seed of k-means and of the samples that are drawn", shapes="index", ge=0)


class IndexConfig(Section):
    """How the passages' vectors are indexed."""

    factory: str = setting(
        "Flat", "a faiss index_factory string; for token vectors Flat or PLAID", shapes="index"
    )
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
    plaid: PlaidSettings | None = setting(
        None,
        "factory PLAID only: how fast-plaid makes the index; null is all defaults",
        shapes="index",
        keyed=False,
    )

    @field_validator("plaid")
    @classmethod
    def _null_if_default(cls, value: PlaidSettings | None) -> PlaidSettings | None:
        """All defaults may be given for any factory, as a file with all settings does."""
        return None if value == PlaidSettings() else value

    @model_validator(mode="after")
    def _has_settings_of_its_factory(self) -> Self:
        if self.plaid and self.factory != PLAID:
            raise ValueError(
                f"index.plaid belongs to index.factory: PLAID, and index.factory is '{self.factory}': "
                "leave out one of the two"
            )
        return self
