"""What to know before trusting a comparison: other passages, settings or machines, and few judgments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from pipeline.comparison.inputs import PairIndices, comparable
from pipeline.core.display import counted
from pipeline.metrics.definitions import parse_measure
from pipeline.results.folder import CollectionResult
from pipeline.results.result import MAIN, Result, main_measures_note
from pipeline.results.tables import most_truncated


def notes_of(results: Sequence[Result], measure: str, pairs: PairIndices) -> list[str]:
    """Sentences without their full stops.

    What holds for every collection, or on a collection for every result, is said once.
    """
    first, names = results[0], [result.name for result in results]
    collections_of: dict[str, list[str]] = {}  # by note
    for parts in zip(*(result.collections for result in results), strict=True):
        for note in _on_collection(names, parts, measure):
            collections_of.setdefault(note, []).append(parts[0].name)
    notes = [main_measures_note(first.main_measures)] if measure == MAIN else []
    times = Counter(query for collection in first.collections for query in collection.query_ids)
    if repeated := sum(count > 1 for count in times.values()):
        ids = "1 query id is" if repeated == 1 else f"{repeated:,} query ids are"
        notes.append(f"{ids} in several collections: each counts as one query")
    for note, collections in collections_of.items():
        everywhere = len(collections) == len(first.collections)
        notes.append(note if everywhere else f"{', '.join(collections)}: {note}")
    records = [
        part.record.model_copy(update={"name": result.name})
        for result in results
        for part in result.collections
    ]
    notes += [note.rstrip(".") for note in most_truncated(records)]
    # a speed depends on the processors and the threads; the last run's machine is known of all results
    machines = [
        {
            (number, row.stage): (machine.cpu, machine.cores, machine.gpus, row.threads)
            for number, collection in enumerate(result.collections)
            for row in collection.record.stages
            for machine in (row.hardware or collection.manifest.hardware,)
            if row.seconds is not None
        }
        for result in results
    ]
    for name, others in zip(names[1:], machines[1:], strict=True):
        differing = [key for key, machine in machines[0].items() if others.get(key, machine) != machine]
        if differing:
            stages = ", ".join(dict.fromkeys(stage for _, stage in differing))
            notes.append(
                f"{names[0]} and {name} computed {stages} on different hardware or with other numbers of "
                "threads: these speeds do not compare"
            )
    return notes + _fewer_judged(results, measure, pairs)


def _fewer_judged(results: Sequence[Result], measure: str, pairs: PairIndices) -> list[str]:
    """The pairs whose lower result may be lower for its unjudged passages alone, as one sentence."""
    found = []
    for a, b in pairs:
        low, high = sorted((results[a], results[b]), key=lambda result: result.metrics[measure])
        shares = [result.record.unjudged.get(measure) for result in (low, high)]
        if not all(shares):
            continue
        low_share, high_share = (share.judged for share in shares if share)
        apart = high.metrics[measure] - low.metrics[measure]
        if 0 < apart < high_share - low_share and f"{low_share:.1%}" != f"{high_share:.1%}":
            found.append(f"{low.name} ({low_share:.1%} judged) is below {high.name} ({high_share:.1%})")
    if not found:
        return []
    others = f" and {counted(len(found) - 2, 'other pair')}" if len(found) > 2 else ""
    return [f"unjudged passages, which count as not relevant, may be why {', '.join(found[:2])}{others}"]


def data_notes(results: Sequence[Result]) -> list[str]:
    """How the data of each result differ from the first one's, a sentence each without its full stop."""
    names = [result.name for result in results]
    of_each = zip(*(result.collections for result in results), strict=True)
    return list(dict.fromkeys(note for parts in of_each for note in _on_data(names, parts)))


def _on_data(names: Sequence[str], parts: Sequence[CollectionResult]) -> list[str]:
    return [
        f"{names[0]} and {name} {clause}"
        for name, part in zip(names[1:], parts[1:], strict=True)
        for clause in comparable(parts[0], part).values()
    ]


def _on_collection(names: Sequence[str], parts: Sequence[CollectionResult], measure: str) -> list[str]:
    """What to know of the results on one collection."""
    cutoff = 0 if measure == MAIN else parse_measure(measure).cutoff
    of_each = []
    for part in parts:
        short = part.record.short_rankings
        if short and cutoff is not None and short.fewest >= cutoff:
            short = None  # it says nothing of this measure
        of_each.append(part.record.model_copy(update={"ties": None, "short_rankings": short}).notes)
    notes = [note for note in of_each[0] if all(note in others for others in of_each)]
    for name, said in zip(names, of_each, strict=True):
        notes += [f"{name}: {note}" for note in said if note not in notes]
    for (a, ours), (b, theirs) in combinations(zip(names, parts, strict=True), 2):
        models = [{model.name for model in part.manifest.models} for part in (ours, theirs)]
        if all(models) and models[0].isdisjoint(models[1]) and np.array_equal(ours.values, theirs.values):
            notes.append(
                f"{a} and {b} have the same values for all queries: their models may be one network, such as "
                "an adapter that changes nothing"
            )
    return notes + _on_data(names, parts)
