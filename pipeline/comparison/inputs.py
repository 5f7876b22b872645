"""What is compared: results and run files as read, what is refused, and their values per query."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace
from itertools import count
from os import PathLike
from pathlib import Path

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64
from pipeline.results.folder import CollectionResult
from pipeline.results.records import JudgedShare, Manifest, Metrics, compared_settings
from pipeline.results.result import MAIN, Result, canonical_measure, read_result
from pipeline.storage.whole_files import RANKING

log = logging.getLogger(__name__)

PairIndices = Sequence[tuple[int, int]]
"""The positions of the two results of each pair."""
CONTENT_OF = {"judgments": "qrels", "passages": "passages", "queries": "queries"}
"""The name in `Manifest.contents` of each part of the data."""
ALL_DATA = (*CONTENT_OF, "data.ignored")
"""What two results may differ in; see `comparable`."""
ResultLike = PathLike[str] | str | Result
"""A result folder or a run file, or a result that was read."""


def read_results(
    inputs: Sequence[ResultLike],
    baseline: PathLike[str] | str | None = None,
    qrels: PathLike[str] | str | None = None,
    measure: str | None = None,
    same: Collection[str] = ("judgments",),
) -> tuple[list[Result], int | None]:
    """Read what is to be compared, each under a name of its own, and find the position of the baseline.

    Collections and queries are in the order of the first result. Results of one name get the ends of their
    paths by which they differ; one that is given twice, a number.

    Args:
        inputs: Result folders and run files; one or more.
        baseline: One of them, or another, which is put first, or the name of one of the results.
        qrels: The judgments that run files are scored by.
        measure: A measure to score run files by, besides those of the first result or the default.
        same: What of `ALL_DATA` must be the same.

    Raises:
        InputError: Something is not a finished result, run files and judgments do not go together, or values
            per query cannot be paired: other collections, queries or judgments, or a collection that failed.
    """
    if not inputs:
        raise InputError("no result to compare", allowed="result folders", fix="name at least one")
    run_files = {
        number: Path(path)
        for number, path in enumerate(inputs)
        if not isinstance(path, Result) and Path(path).is_file()
    }
    read = {
        number: copy(result) if isinstance(result, Result) else read_result(result)
        for number, result in enumerate(inputs)
        if number not in run_files
    }
    if run_files or qrels:
        runs, folders = list(run_files.values()), list(read.values())
        scored = _score_runs(runs, folders, Path(qrels) if qrels else None, measure)
        read |= zip(run_files, scored, strict=True)
    results = [read[number] for number in range(len(inputs))]
    position = None
    if baseline is not None:
        folder = Path(baseline).resolve()
        positions = [number for number, result in enumerate(results) if result.folder.resolve() == folder]
        named = [number for number, result in enumerate(results) if result.name == str(baseline)]
        if not positions and len(named) == 1 and not folder.exists():
            positions = named
        if not positions:
            return read_results([baseline, *inputs], None, qrels, measure, same)[0], 0
        position = positions[0]
    # what is not UTF-8 in a path is replaced, for a page could not hold it
    folders_of = [os.fsencode(result.folder.resolve()).decode(errors="replace") for result in results]
    paths = [tuple(folder.split("/")) for folder in folders_of]
    for name in {result.name for result in results}:
        namesakes = [number for number, result in enumerate(results) if result.name == name]
        distinct = {paths[number] for number in namesakes}
        if len(distinct) > 1:
            depth = next(d for d in count(1) if len({path[-d:] for path in distinct}) == len(distinct))
            for number in namesakes:
                results[number].name = "/".join(paths[number][-depth:])
    times: Counter[str] = Counter()
    for result in results:
        times[result.name] += 1
        if (time := times[result.name]) > 1:
            log.info("%s#%d is %s again: one result is given twice", result.name, time, result.name)
            result.name += f"#{time}"
    for result in results:
        _align(result, results[0], same)
    return results, position


def _score_runs(
    runs: Sequence[Path], folders: Sequence[Result], qrels: Path | None, measure: str | None
) -> list[Result]:
    """Score run files, as results that have measures and no stages.

    Raises:
        InputError: There are runs and no judgments, or judgments and no runs; or a folder is a suite's, or
            was scored by other judgments than the runs.
    """
    from pipeline.config import MEASURES
    from pipeline.data.collection_files import hash_judgments
    from pipeline.formats.judgments import read_qrels
    from pipeline.metrics.evaluation import evaluate

    if qrels is None:
        raise InputError(
            f"{runs[0]} is a run file, and --qrels is not given",
            allowed="run files with the judgments that score them, or result folders",
            fix="name a result folder, or give compare --qrels FILE",
        )
    if not runs:
        raise InputError(
            f"--qrels {qrels} without a run file",
            allowed="run files with --qrels; a result folder has its scores already",
            fix="leave it out",
        )
    beside = next((result.only_collection() for result in folders), None)
    measures = [*(beside.measures if beside else MEASURES), *([measure] if measure else [])]
    judged = read_qrels(qrels)
    ids = judged.query_ids.take(judged.queries), judged.passage_ids.take(judged.passages)
    contents = {"qrels": hash_judgments(*ids, judged.grades)}
    if beside and beside.manifest.contents.get("qrels") != contents["qrels"]:
        raise InputError(
            f"{beside.folder} was not scored by {qrels}",
            allowed="the judgments of its collection",
            fix="name their file, or its run.trec in place of the folder",
        )
    manifest = Manifest(recipes={"evaluate": {}}, contents=contents)
    results = []
    for path in runs:
        scored = evaluate(qrels, path, measures)
        in_result = path.name == RANKING and path.parent.name  # a name that every result folder has
        record = Metrics(
            name=f"{path.parent.name}/{RANKING}" if in_result else path.name,
            queries=len(scored.query_ids),
            passages=beside.record.passages if beside else 1,  # not known, and the same for all runs
            metrics=scored.mean_by_measure,
            unjudged={name: JudgedShare(judged=share) for name, share in scored.judged.items()},
            unjudged_queries=scored.unjudged,
            missing_queries=scored.missing,
            missing_ids=scored.missing_ids,
            short_rankings=scored.short_rankings,
            ties=scored.ties,
            stages=(),
        )
        columns = list(scored.mean_by_measure)
        collection = CollectionResult(path, record, manifest, scored.query_ids, columns, scored.values)
        if beside and beside.clusters:
            cluster_of = dict(zip(beside.query_ids, beside.clusters, strict=True))
            collection.clusters = [cluster_of.get(query) for query in scored.query_ids]
        results.append(Result(path, [collection]))
    return results


def comparable(first: CollectionResult, second: CollectionResult) -> dict[str, str]:
    """How the data of two results differ, by content: a clause, such as "searched …", by what differs.

    The names are those of `ALL_DATA`. What is not known of one, as of the passages of a run file, does not
    count as differing.
    """
    sizes = f"{first.record.passages:,} and {second.record.passages:,}"
    clauses = {
        "judgments": "were scored by different judgments",
        "passages": f"searched different passages, {sizes}: their difference is not the model's alone",
        "queries": "have different query texts",
    }
    ours, theirs = first.manifest.contents, second.manifest.contents
    differing = {
        part: clause
        for part, clause in clauses.items()
        if ((key := CONTENT_OF[part]) in ours and key in theirs and ours[key] != theirs[key])
        or (part == "passages" and first.record.passages != second.record.passages)
    }
    configs = (each.manifest.config for each in (first, second))
    ignored = [str(config.get("data", {}).get("ignored", "none")) for config in configs]
    if ignored[0] != ignored[1]:
        values = " and ".join(ignored)
        differing["data.ignored"] = f"were scored with different values of data.ignored, {values}"
    return differing


def _align(result: Result, first: Result, same: Collection[str]) -> None:
    """Put the collections and queries of a result in the order of the first one's.

    Raises:
        InputError: A collection of one failed, they are of other collections, or were scored on other
            queries, or differ in what must be the `same`.
    """
    if (result.suite is None) != (first.suite is None):
        of_suite, of_one = (result, first) if result.suite else (first, result)
        raise InputError(
            f"{of_suite.name} is of a suite, and {of_one.name} is not",
            allowed="results of one suite, or results of one collection",
            fix="name the folder of a collection inside the suite",
        )
    if result.suite and result.suite.failed:
        raise InputError(
            f"{result.name} has no macro mean: {', '.join(result.suite.failed)} failed",
            allowed="suites of which every collection is finished",
            fix="run its config again, which does only what is missing; or compare single collections",
        )
    by_name = {collection.name: collection for collection in result.collections}
    unshared = sorted({collection.name for collection in first.collections} ^ by_name.keys())
    if first.suite and (unshared or first.groups != result.groups):
        what = f"'{unshared[0]}' is only in one" if unshared else "their groups differ"
        raise InputError(
            f"{first.name} and {result.name} are of different collections: {what}",
            allowed="results of one suite",
            fix="run both with the same data",
        )
    if first.suite:
        result.collections = [by_name[collection.name] for collection in first.collections]
    for number, (ours, theirs) in enumerate(zip(first.collections, result.collections, strict=True)):
        inside = f"/{ours.name}" if first.suite else ""
        a, b = f"{first.name}{inside}", f"{result.name}{inside}"
        unpaired = sorted(set(ours.query_ids) ^ set(theirs.query_ids))
        if unpaired:
            where = a if unpaired[0] in set(ours.query_ids) else b
            raise InputError(
                f"{a} and {b} were scored on different queries: {len(ours.query_ids):,} and "
                f"{len(theirs.query_ids):,}, '{unpaired[0]}' only in {where}",
                allowed="results scored on the same queries",
                fix=_same_data(ours, theirs),
            )
        for part, clause in comparable(ours, theirs).items():
            if part in same:
                raise InputError(
                    f"{a} and {b} {clause}",
                    allowed=f"results of the same {part}, whatever their order and the form of their files",
                    fix=_same_data(ours, theirs),
                )
        if theirs.query_ids != ours.query_ids:
            row_of = {query: row for row, query in enumerate(theirs.query_ids)}
            rows = [row_of[query] for query in ours.query_ids]
            clusters = [theirs.clusters[row] for row in rows] if theirs.clusters else ()
            theirs = replace(theirs, query_ids=ours.query_ids, values=theirs.values[rows], clusters=clusters)
            result.collections[number] = theirs
        if theirs.measures and list(theirs.clusters) != list(ours.clusters):
            raise InputError(
                f"{a} and {b} have other clusters of queries",
                allowed="results with one evaluate.cluster of one file of queries",
                fix="run both with it, or both without; only the scores are computed again",
            )


def _same_data(ours: CollectionResult, theirs: CollectionResult) -> str:
    """The fix for two results of other data: the settings of the data that differ."""
    one, other = (compared_settings(each.manifest.config) for each in (ours, theirs))
    differing = [
        name for name in one | other if one.get(name) != other.get(name) and name.startswith("data.")
    ]
    return f"run both with the same {', '.join(differing)}" if differing else "run both on the same data"


def shared_values(
    results: Sequence[Result], wanted: Sequence[str] = ()
) -> tuple[list[str], list[Float64], list[str]]:
    """The values of measures, query by query in the order of the first result.

    Main measures are in all results only if they are the same in all.

    Returns:
        The canonical names of the measures: those wanted, or the first that all results have; for each
        collection float64 [queries, results, measures]; and the names of all that all results have.

    Raises:
        InputError: A measure is not in all results; of a suite, on every collection.
    """
    if unjudged := [each.name for each in results if not all(part.measures for part in each.collections)]:
        raise InputError(
            f"nothing is judged in the collection of {', '.join(unjudged)}, so there is no measure",
            allowed="results with measures",
            fix="let people and a model grade what decides: docs/judge.md says how",
        )
    first = results[0]
    shared = [name for name in first.measures if all(name in result.measures for result in results)]
    if any(result.main_measures != first.main_measures for result in results):
        shared = [name for name in shared if name != MAIN]
    measures = list(dict.fromkeys(map(canonical_measure, wanted))) or shared[:1]
    absent = [measure for measure in measures if measure not in shared]
    if absent or not measures:
        lacking = [result.name for result in results if {*absent} - {*result.measures}]
        lacking = lacking or [result.name for result in results]
        where = "on every collection of" if first.suite else "among the measures of"
        raise InputError(
            f"{', '.join(absent)} is not {where} {', '.join(lacking)}"
            if measures
            else f"no measure is in all of {', '.join(lacking)}",
            allowed=", ".join(shared)
            or "; ".join(f"{each.name} has {', '.join(each.measures)}" for each in results),
            fix="add it to evaluate.measures and run again; nothing else is computed again",
        )
    aligned = [result.values(measures) for result in results]
    return measures, [np.stack(values, axis=1) for values in zip(*aligned, strict=True)], shared
