"""The section `fuse`: several retrievers whose rankings are joined into one."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import model_validator

from pipeline.config.model import BACKENDS, ModelSettings
from pipeline.config.rerank import RERANKERS, ScorerSettings
from pipeline.config.settings import Section, setting
from pipeline.config.stages import IndexConfig, SearchConfig

MethodName = Literal["rrf", "combsum", "combmnz", "weighted", "interpolation"]
NormalizationName = Literal["none", "min_max", "max", "sum", "z_score", "rank"]
METHODS: tuple[str, ...] = get_args(MethodName)
NORMALIZATIONS: tuple[str, ...] = get_args(NormalizationName)


def check_fusion(
    method: MethodName, normalize: str | None, rankings: int, weights: int | None, tuned: bool
) -> None:
    """Raise ValueError for what a method cannot do with so many rankings and weights (None: not given)."""
    if rankings < 2:
        raise ValueError("one ranking: name two or more")
    if method == "rrf" and normalize is not None:
        raise ValueError("rrf joins ranks, and normalize is for scores: leave it out")
    if method == "interpolation" and rankings != 2:
        raise ValueError(f"interpolation joins two rankings, not {rankings}: choose the method 'weighted'")
    if tuned and weights is not None:
        raise ValueError("weights are either given or tuned: leave out one of the two")
    expected = 1 if method == "interpolation" else rankings
    if weights not in (None, expected):
        raise ValueError(f"{method} of {rankings} rankings takes {expected} weights, and {weights} are given")
    if method in ("weighted", "interpolation") and weights is None and not tuned:
        raise ValueError(f"{method} needs weights: give {expected}, or a measure to tune them for")


class PartConfig(Section):
    """One of the retrievers that are joined."""

    model: Annotated[ModelSettings, BACKENDS] = setting(..., "see `model`", shapes="")
    index: IndexConfig = setting(IndexConfig(), "see `index`", shapes="")
    search: SearchConfig | None = setting(None, "see `search`; null is that section", shapes="")
    rerank: Annotated[ScorerSettings | None, RERANKERS] = setting(None, "see `rerank`", shapes="")


class FuseConfig(Section):
    """Retrievers, and how their rankings are joined into one."""

    method: MethodName = setting(
        "rrf", "how ranks or scores are joined; see docs/rerank-and-fuse.md", shapes="fuse"
    )
    of: tuple[PartConfig, ...] = setting(
        ..., "the retrievers, two or more", shapes="fuse", keyed=False, min_length=2, strict=False
    )
    k: int = setting(60, "rrf only: added to every rank", shapes="fuse", ge=1)
    normalize: NormalizationName | None = setting(
        None, "what is made of scores; null is min_max, and none for interpolation", shapes="fuse"
    )
    weights: tuple[float, ...] | None = setting(
        None, "one for each retriever; of interpolation that of the first", shapes="fuse", strict=False
    )
    tune: str | None = setting(
        None,
        "a measure: weights are tuned for it by cross-validation over queries",
        shapes="fuse",
        keyed=False,
    )
    folds: int = setting(5, "parts of the queries for the cross-validation of `tune`", shapes="fuse", ge=2)

    @model_validator(mode="after")
    def _fits_method(self) -> Self:
        given = None if self.weights is None else len(self.weights)
        check_fusion(self.method, self.normalize, len(self.of), given, self.tune is not None)
        return self
