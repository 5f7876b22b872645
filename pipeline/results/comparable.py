"""Checks of results that are to be compared: which are refused, how they are named, and what to note."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.json_record import StageRow
from pipeline.results.folder import SavedResult


def check(results: Sequence[SavedResult], names: Sequence[str]) -> None:
    """Refuse results whose values per query cannot be paired.

    Raises:
        InputError: They were scored on different queries, or by different judgments.
    """
    for result, name in zip(results[1:], names[1:], strict=True):
        _check_queries(results[0], result, names[0], name)
        if _judged_by(result) != _judged_by(results[0]):
            raise InputError(
                f"{names[0]} and {name} were scored by different judgments, as their manifests say",
                allowed="results scored by the same judgments",
                fix="run both on the same data, with the same data.missing_passages",
            )


def _judged_by(result: SavedResult) -> list[Any]:
    """The judgments of a result, and how those of passages that the corpus lacks are handled."""
    sources = _sources(result)
    return [sources.get("qrels"), sources.get("missing_passages")]


def _check_queries(first: SavedResult, result: SavedResult, first_name: str, name: str) -> None:
    unpaired = sorted(set(first.query_ids) ^ set(result.query_ids))
    if unpaired:
        where = first_name if unpaired[0] in set(first.query_ids) else name
        raise InputError(
            f"{first_name} and {name} were scored on different queries: {len(first.query_ids):,} and "
            f"{len(result.query_ids):,}, '{unpaired[0]}' only in {where}",
            allowed="results scored on the same queries",
            fix="run both on the same data, with the same data.queries",
        )


def names_of(results: Sequence[SavedResult]) -> list[str]:
    """The names of the benchmarks; where two are equal, the ends of their paths by which they differ.

    What is not UTF-8 in a path is replaced, for a page could not hold it. A folder given twice gets a number.
    """
    return distinct_names([result.record.name for result in results], [result.folder for result in results])


def distinct_names(names: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """See `names_of`."""
    names = list(names)
    paths = [tuple(os.fsencode(folder.resolve()).decode(errors="replace").split("/")) for folder in folders]
    for name in set(names):
        same = [number for number, other in enumerate(names) if other == name]
        alike = {paths[number] for number in same}
        if len(alike) > 1:
            depth = next(d for d in count(1) if len({path[-d:] for path in alike}) == len(alike))
            for number in same:
                names[number] = "/".join(paths[number][-depth:])
    seen: Counter[str] = Counter()
    for number, name in enumerate(names):
        seen[name] += 1
        names[number] = f"{name}#{seen[name]}" if seen[name] > 1 else name
    return names


def notes(results: Sequence[SavedResult], names: Sequence[str]) -> Iterator[str]:
    """What a reader should know before trusting a difference, a sentence each."""
    first = results[0]
    for result, name in zip(results, names, strict=True):
        if short := result.record.short_rankings:
            yield f"{name}: {short.note}"
    missing = [result.record.missing.notes if result.record.missing else [] for result in results]
    alike = all(said == missing[0] for said in missing)
    for name, said in zip(names, missing[:1] if alike else missing, strict=False):
        yield from (note if alike else f"{name}: {note}" for note in said)
    for result, name in zip(results[1:], names[1:], strict=True):
        ours, theirs = _sources(first), _sources(result)
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
            if _scored_with(setting, first) != _scored_with(setting, result):
                yield f"{names[0]} and {name} were scored with different values of {setting}"


def speed_notes(results: Sequence[Sequence[SavedResult]], names: Sequence[str]) -> Iterator[str]:
    """The stages whose speeds do not compare, a sentence for each result after the first.

    A result is one of a single collection, or those of all collections of a suite, in one order.
    """
    first = results[0]
    for result, name in zip(results[1:], names[1:], strict=True):
        found = chain.from_iterable(map(computed_elsewhere, first, result))
        if apart := list(dict.fromkeys(found)):
            yield (
                f"{names[0]} and {name} computed {', '.join(apart)} on different hardware "
                "or with other numbers of threads: these speeds do not compare"
            )


def unjudged_notes(
    results: Sequence[SavedResult], names: Sequence[str], measure: str, pairs: Sequence[tuple[int, int]]
) -> Iterator[str]:
    """The pairs whose means differ less than the shares of their top k that are judged."""
    shares = [result.record.unjudged.get(measure) for result in results]
    for a, b in pairs:
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


def _sources(result: SavedResult) -> dict[str, Any]:
    """Checksums of the files that hold the judgments, and the passages and queries that they judge."""
    sources = result.manifest.recipes.get("evaluate", {}).get("qrels")
    return sources if isinstance(sources, dict) else {}


def _scored_with(setting: str, result: SavedResult) -> Any:
    return result.manifest.recipes.get("evaluate", {}).get(setting.split(".")[1])


def computed_elsewhere(ours: SavedResult, theirs: SavedResult) -> list[str]:
    """The stages of both results whose figures were not taken on the same kind of machine."""
    apart = []
    for row in ours.record.stages:
        other = theirs.record.stage(row.stage)
        timed = row.seconds is not None and other.seconds is not None
        if timed and _conditions(ours, row) != _conditions(theirs, other):
            apart.append(row.stage)
    return apart


def _conditions(result: SavedResult, row: StageRow) -> tuple[Any, ...]:
    """What a stage's speed depends on; results of earlier versions know the machine of the last run only."""
    hardware = row.hardware or result.manifest.hardware
    return *hardware.processors, row.threads
