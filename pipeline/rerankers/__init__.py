"""Rerankers: models that read a query and a passage together, and score how well the passage answers.

A backend is one file here: its settings, and a class with the interface `pairs.PairBackend` (one that runs
PyTorch extends `classifier.TorchPairs`). `config.rerank.RERANKERS` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from pipeline.config import RerankSettings, ScorerSettings
from pipeline.core.progress import Bar
from pipeline.core.records import Float32
from pipeline.encoders.usage import Usage
from pipeline.models.ready import Ready
from pipeline.rerankers.http import ServedReranker
from pipeline.rerankers.model import Reranker, recipe, resolve
from pipeline.storage.artifacts import Artifact
from pipeline.storage.store import Store

__all__ = ["Reranker", "Scorer", "ServedReranker", "Usage", "ready", "recipe", "resolve"]


class Scorer(Protocol):
    """A loaded reranker."""

    def score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        """Scores float32 [pairs] of queries and passages, in their order, a higher one for a better passage.

        A pair's score does not depend on the other pairs. What scoring costs is added to `usage`, and `bar`
        is advanced by each pair.
        """
        ...


def ready(config: ScorerSettings, model: Reranker | ServedReranker, store: Store) -> Ready:
    """A model that runs here, after its backend has prepared it in `store`, if it needs to."""
    assert isinstance(config, RerankSettings)
    prepared: Artifact | None = config.prepare(model, store)
    return Ready(model, prepared, partial(_open, config))


def _open(config: RerankSettings, model: Reranker, prepared: Path | None) -> Scorer:
    scorer: Scorer = config.load(model, prepared)
    if prepared is None:
        model.files.check()
    return scorer
