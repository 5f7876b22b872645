"""Rerankers: models that read a query and a passage together, and score how well the passage answers.

A backend is one file here: its settings, and a class with the interface `Scorer`.
`config.rerank.RERANKERS` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.config import RerankSettings
from pipeline.core.progress import Bar
from pipeline.core.records import Float32
from pipeline.models.files import Files, find_model
from pipeline.models.resolution import FindModel, choose_device


@dataclass(frozen=True)
class Reranker:
    """A config's reranker with every setting decided.

    Attributes:
        name: Its name in the config.
        files: Its folder, or its commit on the hub.
        precision: Number format of the computation: a CPU runs `fp16` as `fp32`.
        device: `cpu` or `cuda:N`.
        max_length: Tokens kept of a query and a passage together.
        trust_remote_code: Whether Python files that come with the model may run.
    """

    name: str
    files: Files
    precision: str
    device: str
    max_length: int
    trust_remote_code: bool = False

    def recipe(self) -> dict[str, Any]:
        """The model's part of the key of what it scores."""
        return {
            "identity": self.files.identity,
            "precision": self.precision,
            "max_length": self.max_length,
        }


class Scorer(Protocol):
    """A loaded reranker."""

    def score(self, pairs: Sequence[tuple[str, str]], bar: Bar) -> Float32:
        """Scores float32 [pairs] of queries and passages, in their order, a higher one for a better passage.

        A pair's score does not depend on the other pairs. `bar` is advanced by each pair.
        """
        ...


def resolve(config: RerankSettings, find: FindModel = find_model) -> Reranker:
    """The reranker that a config names, without loading anything; `find` finds and hashes its files."""
    device = choose_device(config.device, config.on_gpu)
    return Reranker(
        name=config.name,
        files=find(config.name, config.revision, config.trust_remote_code),
        precision="fp32" if config.precision == "fp16" and device == "cpu" else config.precision,
        device=device,
        max_length=config.max_length,
        trust_remote_code=config.trust_remote_code,
    )


def open_scorer(config: RerankSettings, model: Reranker) -> Scorer:
    """The loaded reranker."""
    scorer: Scorer = config.load(model)
    model.files.check()
    return scorer
