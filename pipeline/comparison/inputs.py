"""What is compared: results and run files as read, their values, what is refused and what is noted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from os import PathLike
from pathlib import Path

import numpy as np

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.json_record import StageRow
from pipeline.core.records import Float64, JsonObject
from pipeline.metrics.names import parse_measures
from pipeline.results.folder import RUN, SavedResult
from pipeline.results.records import Manifest, Metrics, Unjudged
from pipeline.results.suite_folder import (
    MAIN,
    SavedSuite,
    canonical_measure,
    main_measures_note,
    read_suite_result,
)

Places = Sequence[tuple[int, int]]
"""The positions of the two results of each pair."""


def read_all(
    folders: Sequence[PathLike[str] | str],
    baseline: PathLike[str] | str | None = None,
    qrels: PathLike[str] | str | None = None,
    measure: str | None = None,
) -> tuple[list[SavedSuite], int | None]:
    """Read what is to be compared, and find the position of the baseline.

    Args:
        folders: Result folders and run files; one or more.
        baseline: One of them, or another, which is put first, or the name of one of the results.
        qrels: The judgments that run files are scored by.
        measure: A measure to score run files by, besides those of the first result or the default.

    Raises:
        InputError: Something is not a finished result, or run files and judgments do not go together.
    """
    paths = [Path(folder) for folder in folders]
    if not paths:
        raise InputError("no result to compare", allowed="result folders", fix="name at least one")
    runs = [path for path in paths if path.is_file()]
    read = {path: read_suite_result(path) for path in paths if path not in runs}
    if runs or qrels is not None:
        read |= _score_runs(runs, read, None if qrels is None else Path(qrels), measure)
    suites = [read[path] for path in paths]
    if baseline is None:
        return suites, None
    folder = Path(baseline).resolve()
    places = [number for number, suite in enumerate(suites) if suite.folder.resolve() == folder]
    if not places and not folder.exists():
        named = [number for number, suite in enumerate(suites) if suite.name == str(baseline)]
        places = named if len(named) == 1 else []
    if places:
        return suites, places[0]
    return read_all([Path(baseline), *paths], None, qrels, measure)[0], 0


def _score_runs(
    runs: Sequence[Path], folders: dict[Path, SavedSuite], qrels: Path | None, measure: str | None
) -> dict[Path, SavedSuite]:
    """Score run files, as results that have measures and no stages.

    Raises:
        InputError: There are runs and no judgments, or judgments and no runs; or a folder is a suite's, or
            was scored by other judgments than the runs.
    """
    from pipeline.config import MEASURES
    from pipeline.storage.hashing import hash_user_file

    if qrels is None:
        raise InputError(
            f"{runs[0]} is a run file, and --qrels is not given",
            allowed="run files with the judgments that score them, or result folders",
            fix="add --qrels FILE",
        )
    if not runs or any(suite.record for suite in folders.values()):
        what = "with suites" if any(suite.record for suite in folders.values()) else "without a run file"
        raise InputError(
            f"--qrels {qrels} {what}",
            allowed="run files with --qrels; a result folder has its scores already",
            fix="leave it out",
        )
    beside = next((suite.results[""] for suite in folders.values()), None)
    names = [*(beside.measures if beside else MEASURES), *([measure] if measure else [])]
    judged: JsonObject = {"qrels": {"sha256": [hash_user_file(qrels)]}, "missing_passages": "count"}
    if beside:  # whose manifest names the judgments in more words
        theirs = beside.sources.get("qrels")
        same = isinstance(theirs, dict) and theirs.get("sha256") == [hash_user_file(qrels)]
        if not same or beside.sources.get("missing_passages") != "count":
            raise InputError(
                f"{beside.folder} was not scored by {qrels}, as its manifest says",
                allowed="the file of judgments of its collection",
                fix="name that file, or its run.trec in place of the folder",
            )
        judged = beside.sources
    return {path: SavedSuite.of_one(_score(path, qrels, names, judged, beside)) for path in runs}


def _score(
    path: Path, qrels: Path, measures: Sequence[str], judged: JsonObject, beside: SavedResult | None
) -> SavedResult:
    """A run as a result; `beside` is of the same collection."""
    from pipeline.metrics.evaluation import evaluate_files

    scored = evaluate_files(qrels, path, parse_measures(measures))
    in_result = path.name == RUN and path.parent.name  # a name that every result folder has
    record = Metrics(
        name=f"{path.parent.name}/{RUN}" if in_result else path.name,
        queries=len(scored.query_ids),
        passages=beside.record.passages if beside else 1,  # not known, and the same for all runs
        metrics=scored.mean_by_measure,
        unjudged={name: Unjudged(judged=share) for name, share in scored.judged.items()},
        stages=(),
    )
    manifest = Manifest(recipes={"evaluate": {"qrels": judged, "ignore_identical_ids": False}})
    return SavedResult(
        path, record, manifest, scored.query_ids, list(scored.mean_by_measure), scored.values
    )  # fmt: skip


def names_of(suites: Sequence[SavedSuite]) -> list[str]:
    """The names of the benchmarks; where two are equal, the ends of their paths by which they differ.

    What is not UTF-8 in a path is replaced, for a page could not hold it. A folder given twice gets a number.
    """
    names = [suite.name for suite in suites]
    paths = [tuple(os.fsencode(each.folder.resolve()).decode(errors="replace").split("/")) for each in suites]
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


def check(suites: Sequence[SavedSuite], names: Sequence[str]) -> None:
    """Refuse results whose values per query cannot be paired.

    Raises:
        InputError: A collection of one failed, they are of other collections, or were scored on other queries
            or by other judgments.
    """
    first = suites[0]
    for suite, name in zip(suites, names, strict=True):
        if (suite.record is None) != (first.record is None):
            of_suite, of_one = (name, names[0]) if suite.record else (names[0], name)
            raise InputError(
                f"{of_suite} is of a suite, and {of_one} is not",
                allowed="results of one suite, or results of one collection",
                fix="name the folder of a collection inside the suite",
            )
        if suite.record and suite.record.failed:
            raise InputError(
                f"{name} has no macro mean: {', '.join(suite.record.failed)} failed",
                allowed="suites of which every collection is finished",
                fix="run its config again, which does only what is missing; or compare single collections",
            )
        apart = sorted(set(first.collections) ^ set(suite.collections))
        if apart or first.groups != suite.groups:
            what = f"'{apart[0]}' is only in one" if apart else "their groups differ"
            raise InputError(
                f"{names[0]} and {name} are of different collections: {what}",
                allowed="results of one suite",
                fix="run both with the same data",
            )
    for collection in first.collections:
        results = [suite.results[collection] for suite in suites]
        check_collection(results, [f"{name}/{collection}" if collection else name for name in names])


def check_collection(results: Sequence[SavedResult], names: Sequence[str]) -> None:
    """Refuse results of one collection that were scored on different queries, or by different judgments."""
    first = results[0]
    for result, name in zip(results[1:], names[1:], strict=True):
        unpaired = sorted(set(first.query_ids) ^ set(result.query_ids))
        if unpaired:
            where = names[0] if unpaired[0] in set(first.query_ids) else name
            raise InputError(
                f"{names[0]} and {name} were scored on different queries: {len(first.query_ids):,} and "
                f"{len(result.query_ids):,}, '{unpaired[0]}' only in {where}",
                allowed="results scored on the same queries",
                fix="run both on the same data, with the same data.queries",
            )
        # how judgments of passages that the corpus lacks are handled counts as well
        keys = ("qrels", "missing_passages")
        if any(first.sources.get(key) != result.sources.get(key) for key in keys):
            raise InputError(
                f"{names[0]} and {name} were scored by different judgments, as their manifests say",
                allowed="results scored by the same judgments",
                fix="run both on the same data, with the same data.missing_passages",
            )


def choose_measures(
    suites: Sequence[SavedSuite], names: Sequence[str], wanted: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The measures that are wanted, by their canonical names, or the first that all results have; and those.

    Main measures are in all results only if they are the same in all.

    Raises:
        InputError: A measure is not in all results; of a suite, on every collection.
    """
    first = suites[0]
    shared = [name for name in first.measures if all(name in suite.measures for suite in suites)]
    if any(suite.main_measures != first.main_measures for suite in suites):
        shared = [name for name in shared if name != MAIN]
    chosen = list(dict.fromkeys(map(canonical_measure, wanted))) or shared[:1]
    absent = [measure for measure in chosen if measure not in shared]
    if chosen and not absent:
        return chosen, shared
    lacking = [name for name, suite in zip(names, suites, strict=True) if {*absent} - {*suite.measures}]
    where = "on every collection of" if suites[0].record else "among the measures of"
    raise InputError(
        f"{', '.join(absent)} is not {where} {', '.join(lacking or names)}"
        if chosen
        else f"no measure is in all of {', '.join(names)}",
        allowed=", ".join(shared) or "measures that all have",
        fix="add it to evaluate.measures and run again; nothing else is computed again",
    )


def strata_of(suites: Sequence[SavedSuite], measure: str) -> list[Float64]:
    """For each collection float64 [queries, results]: a measure, query by query in the first one's order."""
    strata = []
    for collection, first in suites[0].results.items():
        columns = []
        for result in (suite.results[collection] for suite in suites):
            values = result.values[:, result.measures.index(measure)]
            if result.query_ids != first.query_ids:
                rows = {query: row for row, query in enumerate(result.query_ids)}
                values = values[[rows[query] for query in first.query_ids]]
            columns.append(values)
        strata.append(np.stack(columns, axis=1))
    return strata


def notes_of(suites: Sequence[SavedSuite], names: Sequence[str], measure: str, pairs: Places) -> list[str]:
    """What to know before trusting a comparison, a sentence each without its full stop.

    One that holds for every collection is said once.
    """
    collections, first = suites[0].collections, suites[0].results
    found: dict[str, list[str]] = {}
    for collection in collections:
        for note in _collection_notes([suite.results[collection] for suite in suites], names):
            found.setdefault(note, []).append(collection)
    notes = [main_measures_note(suites[0].main_measures)] if measure == MAIN else []
    for note, where in found.items():
        notes.append(note if len(where) == len(collections) else f"{', '.join(where)}: {note}")
    for suite, name in zip(suites[1:], names[1:], strict=True):
        # a speed depends on the processors and the threads; the last run's machine is known of all results
        apart = dict.fromkeys(
            row.stage
            for one, another in zip(first.values(), suite.results.values(), strict=True)
            for row in one.record.stages
            if row.seconds is not None
            and (other := another.record.stage(row.stage)).seconds is not None
            and _machine(one, row) != _machine(another, other)
        )
        if apart:
            notes.append(
                f"{names[0]} and {name} computed {', '.join(apart)} on different hardware "
                "or with other numbers of threads: these speeds do not compare"
            )
    if suites[0].record:
        return notes
    records = [suite.results[""].record for suite in suites]
    for a, b in pairs:
        ours, theirs = (records[number].unjudged.get(measure) for number in (a, b))
        difference = abs(records[a].metrics[measure] - records[b].metrics[measure])
        if ours and theirs and difference < abs(ours.judged - theirs.judged):
            notes.append(
                f"{names[a]} and {names[b]} differ by {difference:.4f}, less than the judged shares of what "
                f"they found, {ours.judged:.4f} and {theirs.judged:.4f}: missing judgments may decide "
                "(benchmarco pool)"
            )
    return notes


def _machine(result: SavedResult, row: StageRow) -> tuple[object, ...]:
    """What a stage's speed depends on; results of earlier versions know the last run's machine only."""
    machine = row.hardware or result.manifest.hardware
    return machine.cpu, machine.cores, machine.gpus, row.threads


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
        if first.record.passages != result.record.passages:
            yield (
                f"{names[0]} searched {counted(first.record.passages, 'passage')} and {name} "
                f"{result.record.passages:,}: their difference is not the model's alone"
            )
        elif first.sources.get("corpus") != result.sources.get("corpus"):
            yield f"{names[0]} and {name} searched different passages, as their manifests say"
        if first.sources.get("queries") != result.sources.get("queries"):
            yield f"{names[0]} and {name} have the query texts from different files"
        for setting in ("evaluate.ignore_identical_ids", "data.ignored"):
            key = setting.partition(".")[2]
            scored = (each.manifest.recipes.get("evaluate", {}) for each in (first, result))
            values = [recipe.get(key) or "none" for recipe in scored]  # a run file has no settings
            if values[0] != values[1]:
                yield f"{names[0]} and {name} were scored with different values of {setting}"
