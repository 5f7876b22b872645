"""What is compared: result folders and run files as read, their names, and what is refused."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64
from pipeline.metrics.names import parse_measures
from pipeline.results.folder import RUN, SavedResult
from pipeline.results.records import Manifest, Metrics, Unjudged
from pipeline.results.suite_folder import MAIN, SavedSuite, canonical_measure, measure_in, read_suite_result


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
    judged = _judged(qrels, beside)
    return {path: SavedSuite.of_one(_score(path, qrels, names, judged, beside)) for path in runs}


def _judged(qrels: Path, beside: SavedResult | None) -> dict[str, Any]:
    """How a manifest names judgments: as in that of a result which they have scored, if there is one."""
    from pipeline.storage.hashing import hash_user_file

    own = hash_user_file(qrels)
    if beside is None:
        return {"qrels": {"sha256": [own]}, "missing_passages": "count"}
    theirs: Any = beside.manifest.recipes.get("evaluate", {}).get("qrels")
    is_dict = isinstance(theirs, dict) and isinstance(theirs.get("qrels"), dict)
    if is_dict and theirs["qrels"].get("sha256") == [own] and theirs.get("missing_passages") == "count":
        return dict(theirs)
    raise InputError(
        f"{beside.folder} was not scored by {qrels}, as its manifest says",
        allowed="the file of judgments of its collection",
        fix="name that file, or its run.trec in place of the folder",
    )


def _score(
    path: Path, qrels: Path, measures: Sequence[str], judged: dict[str, Any], beside: SavedResult | None
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
        ours, theirs = (
            [sources_of(each).get(key) for key in ("qrels", "missing_passages")] for each in (first, result)
        )
        if ours != theirs:
            raise InputError(
                f"{names[0]} and {name} were scored by different judgments, as their manifests say",
                allowed="results scored by the same judgments",
                fix="run both on the same data, with the same data.missing_passages",
            )


def sources_of(result: SavedResult) -> dict[str, Any]:
    """Checksums of the files that hold the judgments, and the passages and queries that they judge."""
    sources = result.manifest.recipes.get("evaluate", {}).get("qrels")
    return sources if isinstance(sources, dict) else {}


def shared_measures(suites: Sequence[SavedSuite]) -> list[str]:
    """The measures that all results have; main measures only if those are the same in all."""
    first = suites[0]
    same = all(suite.main_measures == first.main_measures for suite in suites)
    kept = [name for name in first.measures if all(name in suite.measures for suite in suites)]
    return [name for name in kept if name != MAIN or same]


def choose_measures(
    suites: Sequence[SavedSuite], names: Sequence[str], wanted: Sequence[str] = ()
) -> list[str]:
    """The measures that are wanted, by their canonical names, or the first that all results have.

    Raises:
        InputError: A measure is not in all results; of a suite, on every collection.
    """
    shared = shared_measures(suites)
    chosen = list(dict.fromkeys(map(canonical_measure, wanted))) or shared[:1]
    absent = [measure for measure in chosen if measure not in shared]
    if chosen and not absent:
        return chosen
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
        name = measure_in(collection, measure, suites[0].main_measures)
        columns = [values_in_order(suite.results[collection], name, first.query_ids) for suite in suites]
        strata.append(np.stack(columns, axis=1))
    return strata


def values_in_order(result: SavedResult, measure: str, query_ids: list[str]) -> Float64:
    """float64 [queries], in the order of `query_ids`."""
    values: Float64 = result.values[:, result.measures.index(measure)]
    if result.query_ids == query_ids:
        return values
    rows = {query: row for row, query in enumerate(result.query_ids)}
    return values[[rows[query] for query in query_ids]]
