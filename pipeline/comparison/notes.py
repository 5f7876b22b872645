"""What to know before trusting a comparison: other passages, settings or machines, and few judgments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pipeline.comparison.inputs import PairIndices, comparable
from pipeline.metrics.names import parse_measure
from pipeline.results.folder import CollectionResult
from pipeline.results.result import MAIN, Result, main_measures_note
from pipeline.results.tables import most_truncated
from pipeline.retrievers.truncation import Truncation


def notes_of(results: Sequence[Result], measure: str, pairs: PairIndices) -> list[str]:
    """Sentences without their full stops.

    What holds for every collection, or on a collection for every result, is said once.
    """
    first, names = results[0], [result.name for result in results]
    collections_of: dict[str, list[str]] = {}  # by note
    several = len(first.collections) > 1
    for parts in zip(*(result.collections for result in results), strict=True):
        for note in _on_collection(names, parts, several):
            collections_of.setdefault(note, []).append(parts[0].name)
    notes = [main_measures_note(first.main_measures)] if measure == MAIN else []
    times = Counter(query for collection in first.collections for query in collection.query_ids)
    if repeated := sum(count > 1 for count in times.values()):
        ids = "1 query id is" if repeated == 1 else f"{repeated:,} query ids are"
        notes.append(f"{ids} in several collections: each counts as one query")
    for note, collections in collections_of.items():
        everywhere = len(collections) == len(first.collections)
        notes.append(note if everywhere else f"{', '.join(collections)}: {note}")
    for result in results if several else ():
        of_parts = most_truncated([part.record for part in result.collections])
        notes += [f"{result.name}: {note.rstrip('.')}" for note in of_parts]
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
    for a, b in pairs:
        # unjudged passages count as not relevant: the result with more of them may be lower for that alone
        low, high = sorted((a, b), key=lambda number: results[number].metrics[measure])
        shares = [results[number].record.unjudged.get(measure) for number in (low, high)]
        if not all(shares):
            continue
        low_share, high_share = (share.judged for share in shares if share)
        below = results[high].metrics[measure] - results[low].metrics[measure]
        if 0 < below < high_share - low_share:
            notes.append(
                f"{names[low]} is {below:.4f} below {names[high]} and has fewer judged passages in its top "
                f"{parse_measure(measure).cutoff}, {low_share:.1%} against {high_share:.1%}; unjudged ones "
                "count as not relevant, which may be the difference"
            )
    return notes


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


def _on_collection(names: Sequence[str], parts: Sequence[CollectionResult], several: bool) -> list[str]:
    """What to know of the results on one collection, or on one of several."""
    left_out = {"ties": None, **({Truncation.key: None} if several else {})}
    of_each = [part.record.model_copy(update=left_out).notes for part in parts]
    notes = [note for note in of_each[0] if all(note in others for others in of_each)]
    for name, said in zip(names, of_each, strict=True):
        notes += [f"{name}: {note}" for note in said if note not in notes]
    return notes + _on_data(names, parts)
