"""What to know before trusting a comparison: other passages, settings or machines, and few judgments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations, islice

import numpy as np

from pipeline.comparison.inputs import PairIndices, comparable
from pipeline.core.display import MOST_NAMED, counted, enumerated
from pipeline.core.records import Facts
from pipeline.core.result_files import RANKING
from pipeline.metrics.names import parse_measure
from pipeline.results.folder import CollectionResult
from pipeline.results.records import compared_settings
from pipeline.results.result import MAIN, Result, main_measures_note
from pipeline.results.tables import most_truncated
from pipeline.retrievers.composition import FusedRankings
from pipeline.retrievers.truncation import Truncation

INDEX = ("index.", "search.parameters")
"""How the settings of an index begin."""


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
    return notes + _by_index_alone(results) + _fewer_judged(results, measure, pairs)


def _by_index_alone(results: Sequence[Result]) -> list[str]:
    """Which results differ by the index alone, a sentence for those that have all else in common."""
    alike = defaultdict[str, dict[str, Facts]](dict)  # the settings of the index by name, by all others
    for result in results:
        settings = compared_settings(result.collections[0].manifest.config)
        of_index = {name: value for name, value in settings.items() if name.startswith(INDEX)}
        others = sorted((name, value) for name, value in settings.items() if name not in of_index)
        alike[str(others)][result.name] = of_index
    notes = []
    for group in alike.values():
        first, *rest = group.values()
        if any(each != first for each in rest):
            factories = enumerated([str(each.get("index.factory")) for each in group.values()])
            few = f"{enumerated([*group])} differ by the index alone: {factories}"
            notes.append(
                few if len(group) <= MOST_NAMED else f"{len(group)} results differ by the index alone"
            )
    return notes


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
        left_out: dict[str, None] = {"ties": None, Truncation.key: None, FusedRankings.key: None}
        short = part.record.short_rankings
        if short and cutoff is not None and short.fewest >= cutoff:  # which says nothing of this measure
            left_out["short_rankings"] = None
        of_each.append(part.record.model_copy(update=left_out).notes)
    notes = [note for note in of_each[0] if all(note in others for others in of_each)]
    for name, said in zip(names, of_each, strict=True):
        notes += [f"{name}: {note}" for note in said if note not in notes]
    for (a, ours), (b, theirs) in combinations(zip(names, parts, strict=True), 2):
        if _have_same_vectors(ours, theirs):
            notes.append(
                f"the models of {a} and {b} gave the same vectors for all texts, as their equal scores show: "
                "they may be one network, such as an adapter that changes nothing"
            )
    return notes + _on_data(names, parts)


RANKED = 10_000
"""Lines of a ranking by whose scores the vectors of two models are told apart."""
ROUNDING = 1e-5
"""Of scores, over the largest: what vectors of one network differ by."""


def _have_same_vectors(a: CollectionResult, b: CollectionResult) -> bool:
    """Whether two models with different names gave equal scores to the passages they ranked first."""
    models = [[model.name for model in part.manifest.models] for part in (a, b)]
    later = any(part.manifest.config.get(stage) for part in (a, b) for stage in ("rerank", "fuse"))
    if later or not all(models) or models[0] == models[1] or not np.array_equal(a.values, b.values):
        return False
    files = [part.folder / RANKING for part in (a, b)]
    if not all(file.is_file() for file in files):
        return False
    scores = []
    for file in files:
        with file.open(encoding="utf-8") as lines:
            scores.append(np.array([float(line.split()[-2]) for line in islice(lines, RANKED)]))
    ours, theirs = scores
    return len(ours) == len(theirs) and bool(
        (np.abs(ours - theirs) <= ROUNDING * np.abs(ours).max(initial=0)).all()
    )
