"""One model by two backends: whether their scores differ by near ties alone, which rounding decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.result_files import RANKING
from pipeline.formats.runs import Run, read_run
from pipeline.metrics.names import parse_measure
from pipeline.metrics.paired import SAME
from pipeline.results.folder import CollectionResult
from pipeline.results.records import Manifest
from pipeline.results.result import Result

NEAR = 1e-4
"""Passages with scores no further apart may change places with another arithmetic of the same precision."""
ARITHMETIC = {
    "key", "schema", "schemas", "backend", "prepared", "precision", "trust_remote_code", "libraries", "mode"
}  # fmt: skip
"""Parts of recipes that say how a model is computed, and not which model."""
MOST_QUERIES = 100  # whose rankings are compared


@dataclass(frozen=True)
class NearTies:
    """What another arithmetic changes in results of one model.

    Attributes:
        queries: Queries that are compared.
        changed: Those whose values differ.
        gap: Of the passages that change places among their ranks, the largest difference of scores.
    """

    queries: int
    changed: int
    gap: float

    def sentence(self, first: str, second: str) -> str:
        """It, without a full stop."""
        what = f"{first} and {second}: same model, other arithmetic"
        if not self.changed:
            return f"{what}: no query changes"
        changed = (
            f"{self.changed:,} of {self.queries:,} queries {'changes' if self.changed == 1 else 'change'}"
        )
        return f"{what}: {changed}, by near ties of at most {self.gap:.0e}"


def near_ties(first: Result, second: Result, measure: str) -> NearTies | None:
    """What tells two results of one model apart; None for two models, or if it is more than near ties."""
    pairs = list(zip(first.collections, second.collections, strict=True))
    if not all(measure in one.measures and _same_model(one.manifest, other.manifest) for one, other in pairs):
        return None
    ties_of_each = [_on_collection(one, other, measure) for one, other in pairs]
    if any(ties is None for ties in ties_of_each):
        return None
    known = [ties for ties in ties_of_each if ties]
    return NearTies(
        sum(ties.queries for ties in known),
        sum(ties.changed for ties in known),
        max(ties.gap for ties in known),
    )


def _same_model(first: Manifest, second: Manifest) -> bool:
    """Whether two results have the same settings, but for how their models are computed, which differs."""
    one, other = (_without_arithmetic(manifest.recipes) for manifest in (first, second))
    return bool(first.models) and one == other and first.recipes != second.recipes


def _without_arithmetic(recipes: Mapping[str, Mapping[str, object]]) -> object:
    keys = {recipe.get("key") for recipe in recipes.values()}

    def plain(value: object) -> object:
        if isinstance(value, Mapping):
            return {
                name: plain(inner)
                for name, inner in value.items()
                if name not in ARITHMETIC and not (isinstance(inner, str) and inner in keys)
            }
        return value

    return plain(recipes)


def _on_collection(first: CollectionResult, second: CollectionResult, measure: str) -> NearTies | None:
    """The near ties of one collection; None if a value differs by more, or a ranking is not kept."""
    values = [result.values[:, result.measures.index(measure)] for result in (first, second)]
    rows = np.flatnonzero(np.abs(values[0] - values[1]) > SAME)
    if not len(rows):
        return NearTies(len(values[0]), 0, 0.0)
    paths = [result.folder / RANKING for result in (first, second)]
    if len(rows) > MOST_QUERIES or not all(path.is_file() and path.stat().st_size for path in paths):
        return None
    queries = [first.query_ids[row] for row in rows]
    hits = [_hits(read_run(path), queries) for path in paths]
    cutoff = parse_measure(measure).cutoff
    gap = max(_largest_gap(hits[0].get(query, {}), hits[1].get(query, {}), cutoff) for query in queries)
    return NearTies(len(values[0]), len(rows), gap) if gap <= NEAR else None


def _hits(run: Run, queries: Sequence[str]) -> dict[str, dict[str, float]]:
    """The passages of some queries with their scores, the best first."""
    ids, hits = run.query_ids.to_pylist(), {}
    for query in queries:
        if query in ids:
            lines = np.flatnonzero(run.queries == ids.index(query))
            lines = lines[np.argsort(-run.scores[lines], kind="stable")]
            documents = run.documents.take(lines).to_pylist()
            hits[query] = dict(zip(documents, run.scores[lines].tolist(), strict=True))
    return hits


def _largest_gap(first: Mapping[str, float], second: Mapping[str, float], cutoff: int | None) -> float:
    """Of the passages before a cutoff that two rankings have in another order, the largest gap in scores."""
    names = list(dict.fromkeys([*[*first][:cutoff], *[*second][:cutoff]]))
    if any(name not in first or name not in second for name in names):
        return np.inf
    one, other = (np.array([scores[name] for name in names]) for scores in (first, second))
    gaps = one[:, None] - one[None, :], other[None, :] - other[:, None]
    swapped = (gaps[0] >= 0) & (gaps[1] >= 0) & ((gaps[0] > 0) | (gaps[1] > 0))
    return float(np.maximum(*gaps)[swapped].max(initial=0.0))
