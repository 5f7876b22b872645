"""What to know before trusting a comparison: a sentence each, without its full stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from pipeline.comparison.inputs import sources_of
from pipeline.comparison.pairs import Pair, Places
from pipeline.core.display import counted
from pipeline.core.json_record import StageRow
from pipeline.results.folder import SavedResult
from pipeline.results.suite_folder import MAIN, SavedSuite, main_measures_note


def notes_of(
    suites: Sequence[SavedSuite], names: Sequence[str], measure: str, places: Places, pairs: Sequence[Pair]
) -> list[str]:
    """All notes; one that holds for every collection is said once."""
    collections = suites[0].collections
    found: dict[str, list[str]] = {}
    for collection in collections:
        for note in _collection_notes([suite.results[collection] for suite in suites], names):
            found.setdefault(note, []).append(collection)
    notes = [main_measures_note(suites[0].main_measures)] if measure == MAIN else []
    for note, where in found.items():
        notes.append(note if len(where) == len(collections) else f"{', '.join(where)}: {note}")
    notes += _speed_notes(suites, names)
    if suites[0].record is None:
        results = [suite.results[""] for suite in suites]
        notes += _unjudged_notes(results, names, measure, places)
    return notes


def _collection_notes(results: Sequence[SavedResult], names: Sequence[str]) -> Iterator[str]:
    """What to know of results of one collection."""
    first = results[0]
    for result, name in zip(results, names, strict=True):
        if short := result.record.short_rankings:
            yield f"{name}: {short.note}"
    missing = [result.record.missing.notes if result.record.missing else [] for result in results]
    alike = all(said == missing[0] for said in missing)
    for name, said in zip(names, missing[:1] if alike else missing, strict=False):
        yield from (note if alike else f"{name}: {note}" for note in said)
    for result, name in zip(results[1:], names[1:], strict=True):
        ours, theirs = sources_of(first), sources_of(result)
        passages = first.record.passages, result.record.passages
        if passages[0] != passages[1]:
            yield (
                f"{names[0]} searched {counted(passages[0], 'passage')} and {name} {passages[1]:,}: "
                "their difference is not the model's alone"
            )
        elif ours.get("corpus") != theirs.get("corpus"):
            yield f"{names[0]} and {name} searched different passages, as their manifests say"
        if ours.get("queries") != theirs.get("queries"):
            yield f"{names[0]} and {name} have the query texts from different files"
        for setting in ("evaluate.ignore_identical_ids", "data.ignored"):
            key = setting.partition(".")[2]
            values = [each.manifest.recipes.get("evaluate", {}).get(key) for each in (first, result)]
            if values[0] != values[1]:
                yield f"{names[0]} and {name} were scored with different values of {setting}"


def _speed_notes(suites: Sequence[SavedSuite], names: Sequence[str]) -> Iterator[str]:
    """The stages whose speeds do not compare, a sentence for each result after the first."""
    first = suites[0].results.values()
    for suite, name in zip(suites[1:], names[1:], strict=True):
        found = chain.from_iterable(map(_computed_elsewhere, first, suite.results.values()))
        if apart := list(dict.fromkeys(found)):
            yield (
                f"{names[0]} and {name} computed {', '.join(apart)} on different hardware "
                "or with other numbers of threads: these speeds do not compare"
            )


def _computed_elsewhere(ours: SavedResult, theirs: SavedResult) -> list[str]:
    """The stages of both results whose figures were not taken on the same kind of machine."""

    def conditions(result: SavedResult, row: StageRow) -> tuple[Any, ...]:
        """What a stage's speed depends on; results of earlier versions know the last run's machine only."""
        return *(row.hardware or result.manifest.hardware).processors, row.threads

    apart = []
    for row in ours.record.stages:
        other = theirs.record.stage(row.stage)
        timed = row.seconds is not None and other.seconds is not None
        if timed and conditions(ours, row) != conditions(theirs, other):
            apart.append(row.stage)
    return apart


def _unjudged_notes(
    results: Sequence[SavedResult], names: Sequence[str], measure: str, places: Places
) -> Iterator[str]:
    """The pairs whose means differ less than the shares of their top k that are judged."""
    shares = [result.record.unjudged.get(measure) for result in results]
    for a, b in places:
        one, other = shares[a], shares[b]
        if one is None or other is None:
            continue
        apart = abs(results[a].record.metrics[measure] - results[b].record.metrics[measure])
        if apart < abs(one.judged - other.judged):
            yield (
                f"{names[a]} and {names[b]} differ by {apart:.4f}, less than the judged shares of what they "
                f"found, {one.judged:.4f} and {other.judged:.4f}: missing judgments may decide "
                "(benchmarco pool)"
            )
