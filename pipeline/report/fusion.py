"""Sentences about a fusion: how rankings were joined, and where their weights come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def weight_sentences(facts: dict[str, Any]) -> list[str]:
    """The method and the weights of a fusion, a sentence each.

    Args:
        facts: `method`, `normalize`, and `weights` or `tuned`, as in the section `fusion` of `metrics.json`.
    """
    normalize = facts.get("normalize")
    scores = f" of scores normalized by {normalize}" if normalize not in (None, "none") else ""
    tuned = facts.get("tuned")
    if not tuned:
        return [f"Joined by {facts['method']}{scores}, weights {_listed(facts['weights'])}."]
    folds = tuned["folds"]
    chosen = "; ".join(f"{_listed(fold['weights'])} for {fold['queries']} queries" for fold in folds)
    return [
        f"Joined by {facts['method']}{scores}.",
        f"Weights tuned for {tuned['measure']} by cross-validation in {len(folds)} folds: every query is "
        f"scored by weights that have not seen it. They are {chosen}.",
    ]


def _listed(weights: Sequence[float]) -> str:
    return ", ".join(f"{weight:g}" for weight in weights)
