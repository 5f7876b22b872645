"""What does a page know of its queries? Their values, and for the most telling ones the passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np

from pipeline.core import display
from pipeline.core.records import Collection, Float64
from pipeline.metrics.names import parse
from pipeline.report.failures import Examined, Hit, examine, find_collection, texts_of
from pipeline.results.comparison import Comparison
from pipeline.results.folder import SavedResult

QUERIES = 200
"""Queries shown with their passages, at most."""
RANKINGS = 500
"""The same in rankings: queries times results, at most."""
QUERY_LENGTH, PASSAGE_LENGTH = 200, 300
"""Characters shown of a text."""


@dataclass(frozen=True)
class Evidence:
    """What the cached collections and the run files tell.

    Attributes:
        examined: For each result; None where its collection is not in its cache.
        chosen: Ids of the queries shown with their passages, the most telling first.
        queries: Text of each query that has one.
        passages: Text of each passage shown.
        notes: What is not there, a sentence each.
    """

    examined: list[Examined | None]
    chosen: list[str]
    queries: dict[str, str]
    passages: dict[str, str]
    notes: list[str]

    def view(self, comparison: Comparison) -> dict[str, Any]:
        """What the page's script shows: compact JSON, every query once, every text once."""
        number = {name: at for at, name in enumerate(self.passages)}
        row = {query: at for at, query in enumerate(comparison.query_ids)}
        names = {entry.name: at for at, entry in enumerate(comparison.results)}
        return {
            "measure": comparison.measure,
            "rel": relevance_level(comparison),
            "names": list(names),
            "values": [_rounded(column) for column in comparison.values.T],
            "pairs": [
                [
                    names[pair.a],
                    names[pair.b],
                    pair.difference,
                    pair.ci_low,
                    pair.ci_high,
                    display.p(pair.p_holm),
                    pair.wins,
                    pair.ties,
                    pair.losses,
                ]
                for pair in comparison.pairs
            ],
            "ids": comparison.query_ids,
            "texts": [self.queries.get(query, "") for query in comparison.query_ids],
            "passages": list(self.passages.items()),
            "details": {
                row[query]: [_detail(examined, query, number) for examined in self.examined]
                for query in self.chosen
            },
        }


def relevance_level(comparison: Comparison) -> int:
    """The lowest grade that counts as relevant, by the measure compared."""
    return int(parse(comparison.measure).settings.get("rel", 1))


def gather(comparison: Comparison) -> Evidence:
    """Read rankings, judgments and texts of what is compared, as far as they are there."""
    chosen = telling(comparison.values, min(QUERIES, RANKINGS // len(comparison.results)))
    ids = [comparison.query_ids[at] for at in chosen]
    rel = relevance_level(comparison)
    opened: dict[tuple[str, str], Collection | None] = {}
    examined: list[Examined | None] = []
    queries: dict[str, str] = {}
    passages: dict[str, str] = {}
    for source in comparison.sources:
        place = _cache(source), str(source.manifest.recipes.get("data", {}).get("key"))
        if place not in opened:
            opened[place] = find_collection(source.manifest)
        collection = opened[place]
        if collection is None:
            examined.append(None)
            continue
        seen = examine(source.folder, source.manifest, collection, ids, rel)
        examined.append(seen)
        queries = queries or texts_of(collection.queries, comparison.query_ids, QUERY_LENGTH)
        hits = chain.from_iterable((*told.top, *told.missed) for told in seen.queries.values())
        new = [name for name in dict.fromkeys(hit.passage for hit in hits) if name not in passages]
        passages |= dict.fromkeys(new, "") | texts_of(collection.passages, new, PASSAGE_LENGTH)
    return Evidence(
        examined, ids if any(examined) else [], queries, passages, list(_notes(comparison, examined))
    )


def telling(values: Float64, most: int) -> list[int]:
    """Rows of the queries worth showing: where two results differ most, and where one does worst.

    Args:
        values: float64 [queries, results].
        most: How many rows.

    Returns:
        At most `most` rows: of every pair the largest difference, of every result the lowest value, then
        the second of each, and so on.
    """
    orders: list[Sequence[int]] = [
        np.argsort(-np.abs(values[:, a] - values[:, b]), kind="stable").tolist()
        for a, b in combinations(range(values.shape[1]), 2)
    ]
    orders += [np.argsort(column, kind="stable").tolist() for column in values.T]
    return list(dict.fromkeys(chain.from_iterable(zip(*orders, strict=True))))[:most]


def _cache(source: SavedResult) -> str:
    return str(source.manifest.config.get("cache"))


def _notes(comparison: Comparison, examined: Sequence[Examined | None]) -> Iterator[str]:
    """What is not shown, and how to have it."""
    lost = [at for at, found in enumerate(examined) if found is None]
    if not lost:
        return
    names = ", ".join(comparison.results[at].name for at in lost)
    caches = ", ".join(sorted({_cache(comparison.sources[at]) for at in lost}))
    yield (
        f"The collection of {names} is not in its cache ({caches}): curves, judgments and passages are not "
        "shown. Run the config again, or make this page in the folder where the cache is."
    )


def _detail(examined: Examined | None, query: str, number: dict[str, int]) -> dict[str, Any] | None:
    told = examined.queries.get(query) if examined else None
    if told is None:
        return None

    def short(hit: Hit) -> list[Any]:
        score = None if hit.score is None else float(f"{hit.score:.5g}")
        return [number[hit.passage], hit.rank, score, hit.grade]

    return {
        "why": told.why,
        "top": [short(hit) for hit in told.top],
        "missed": [short(hit) for hit in told.missed],
        "depth": told.depth,
        "ranks": told.ranks,
        "relevant": told.relevant,
    }


def _rounded(column: Float64) -> list[float]:
    """To four digits, as the page shows them; whole numbers as such, which are shorter."""
    return [int(value) if value == int(value) else value for value in np.round(column, 4).tolist()]
