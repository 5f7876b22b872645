"""What is compared: results and run files as read, what is refused, their values per query, and notes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from copy import copy
from hashlib import sha256
from itertools import count
from os import PathLike
from pathlib import Path

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64, JsonObject
from pipeline.core.result_files import RANKING
from pipeline.metrics.names import parse_measures
from pipeline.results.folder import CollectionResult
from pipeline.results.records import Manifest, Metrics, Unjudged
from pipeline.results.result import (
    MAIN,
    Result,
    canonical_measure,
    main_measures_note,
    read_result,
)

Places = Sequence[tuple[int, int]]
"""The positions of the two results of each pair."""
Given = PathLike[str] | str | Result
"""A result folder or a run file, or a result that was read."""


def read_all(
    given: Sequence[Given],
    baseline: PathLike[str] | str | None = None,
    qrels: PathLike[str] | str | None = None,
    measure: str | None = None,
) -> tuple[list[Result], int | None]:
    """Read what is to be compared, each under a name of its own, and find the position of the baseline.

    Results of one name get the ends of their paths by which they differ; one that is given twice, a number.

    Args:
        given: Result folders and run files; one or more.
        baseline: One of them, or another, which is put first, or the name of one of the results.
        qrels: The judgments that run files are scored by.
        measure: A measure to score run files by, besides those of the first result or the default.

    Raises:
        InputError: Something is not a finished result, or run files and judgments do not go together.
    """
    if not given:
        raise InputError("no result to compare", allowed="result folders", fix="name at least one")
    run_files = {
        number: Path(each)
        for number, each in enumerate(given)
        if not isinstance(each, Result) and Path(each).is_file()
    }
    read = {
        number: copy(each) if isinstance(each, Result) else read_result(each)
        for number, each in enumerate(given)
        if number not in run_files
    }
    if run_files or qrels:
        runs, folders = list(run_files.values()), list(read.values())
        scored = _score_runs(runs, folders, Path(qrels) if qrels else None, measure)
        read |= zip(run_files, scored, strict=True)
    suites = [read[number] for number in range(len(given))]
    place = None
    if baseline is not None:
        folder = Path(baseline).resolve()
        places = [number for number, suite in enumerate(suites) if suite.folder.resolve() == folder]
        named = [number for number, suite in enumerate(suites) if suite.name == str(baseline)]
        if not places and len(named) == 1 and not folder.exists():
            places = named
        if not places:
            return read_all([baseline, *given], None, qrels, measure)[0], 0
        place = places[0]
    # what is not UTF-8 in a path is replaced, for a page could not hold it
    paths = [tuple(os.fsencode(each.folder.resolve()).decode(errors="replace").split("/")) for each in suites]
    for name in {suite.name for suite in suites}:
        same = [number for number, suite in enumerate(suites) if suite.name == name]
        alike = {paths[number] for number in same}
        if len(alike) > 1:
            depth = next(d for d in count(1) if len({path[-d:] for path in alike}) == len(alike))
            for number in same:
                suites[number].name = "/".join(paths[number][-depth:])
    seen: Counter[str] = Counter()
    for suite in suites:
        seen[suite.name] += 1
        suite.name += f"#{seen[suite.name]}" if seen[suite.name] > 1 else ""
    return suites, place


def _score_runs(
    runs: Sequence[Path], folders: Sequence[Result], qrels: Path | None, measure: str | None
) -> list[Result]:
    """Score run files, as results that have measures and no stages.

    Raises:
        InputError: There are runs and no judgments, or judgments and no runs; or a folder is a suite's, or
            was scored by other judgments than the runs.
    """
    from pipeline.config import MEASURES
    from pipeline.metrics.evaluation import evaluate_files
    from pipeline.storage.hashing import hash_user_file

    if qrels is None:
        raise InputError(
            f"{runs[0]} is a run file, and --qrels is not given",
            allowed="run files with the judgments that score them, or result folders",
            fix="name a result folder, or give compare --qrels FILE",
        )
    if not runs or any(suite.suite for suite in folders):
        what = "with suites" if any(suite.suite for suite in folders) else "without a run file"
        raise InputError(
            f"--qrels {qrels} {what}",
            allowed="run files with --qrels; a result folder has its scores already",
            fix="leave it out",
        )
    beside = next((suite.only_collection() for suite in folders), None)
    measures = [*(beside.measures if beside else MEASURES), *([measure] if measure else [])]
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
    manifest = Manifest(recipes={"evaluate": {"qrels": judged, "ignore_identical_ids": False}})
    suites = []
    for path in runs:
        scored = evaluate_files(qrels, path, parse_measures(measures))
        in_result = path.name == RANKING and path.parent.name  # a name that every result folder has
        record = Metrics(
            name=f"{path.parent.name}/{RANKING}" if in_result else path.name,
            queries=len(scored.query_ids),
            passages=beside.record.passages if beside else 1,  # not known, and the same for all runs
            metrics=scored.mean_by_measure,
            unjudged={name: Unjudged(judged=share) for name, share in scored.judged.items()},
            stages=(),
        )
        columns = list(scored.mean_by_measure)
        result = CollectionResult(path, record, manifest, scored.query_ids, columns, scored.values)
        suites.append(Result(path, [result]))
    return suites


def check(suites: Sequence[Result]) -> None:
    """Refuse results whose values per query cannot be paired.

    Raises:
        InputError: A collection of one failed, they are of other collections, or were scored on other queries
            or by other judgments.
    """
    first = suites[0]
    for suite in suites:
        if (suite.suite is None) != (first.suite is None):
            of_suite, of_one = (suite, first) if suite.suite else (first, suite)
            raise InputError(
                f"{of_suite.name} is of a suite, and {of_one.name} is not",
                allowed="results of one suite, or results of one collection",
                fix="name the folder of a collection inside the suite",
            )
        if suite.suite and suite.suite.failed:
            raise InputError(
                f"{suite.name} has no macro mean: {', '.join(suite.suite.failed)} failed",
                allowed="suites of which every collection is finished",
                fix="run its config again, which does only what is missing; or compare single collections",
            )
        names, others = ({each.name for each in result.collections} for result in (first, suite))
        unshared = sorted(names ^ others) if first.suite else []
        if unshared or first.groups != suite.groups:
            what = f"'{unshared[0]}' is only in one" if unshared else "their groups differ"
            raise InputError(
                f"{first.name} and {suite.name} are of different collections: {what}",
                allowed="results of one suite",
                fix="run both with the same data",
            )
        for result, other in zip(suite.matching(first), first.collections, strict=True):
            inside = f"/{other.name}" if first.suite else ""
            a, b = f"{first.name}{inside}", f"{suite.name}{inside}"
            unpaired = sorted(set(other.query_ids) ^ set(result.query_ids))
            if unpaired:
                where = a if unpaired[0] in set(other.query_ids) else b
                raise InputError(
                    f"{a} and {b} were scored on different queries: {len(other.query_ids):,} and "
                    f"{len(result.query_ids):,}, '{unpaired[0]}' only in {where}",
                    allowed="results scored on the same queries",
                    fix="run both on the same data, with the same data.queries",
                )
            # how judgments of passages that the corpus lacks are handled counts as well
            if any(
                other.sources.get(key) != result.sources.get(key) for key in ("qrels", "missing_passages")
            ):
                raise InputError(
                    f"{a} and {b} were scored by different judgments, as their manifests say",
                    allowed="results scored by the same judgments",
                    fix="run both on the same data, with the same data.missing_passages",
                )


def shared_values(
    suites: Sequence[Result], wanted: Sequence[str] = ()
) -> tuple[list[str], list[Float64], list[str]]:
    """The values of measures, query by query in the order of the first result.

    Main measures are in all results only if they are the same in all.

    Returns:
        The canonical names of the measures: those wanted, or the first that all results have; for each
        collection float64 [queries, results, measures]; and the names of all that all results have.

    Raises:
        InputError: A measure is not in all results; of a suite, on every collection.
    """
    if unjudged := [suite.name for suite in suites if not all(each.measures for each in suite.collections)]:
        raise InputError(
            f"nothing is judged in the collection of {', '.join(unjudged)}, so there is no measure",
            allowed="results with measures",
            fix="let people and a model grade what decides: benchmarco pool --decide, then benchmarco judge",
        )
    first = suites[0]
    shared = [name for name in first.measures if all(name in suite.measures for suite in suites)]
    if any(suite.main_measures != first.main_measures for suite in suites):
        shared = [name for name in shared if name != MAIN]
    chosen = list(dict.fromkeys(map(canonical_measure, wanted))) or shared[:1]
    absent = [measure for measure in chosen if measure not in shared]
    if absent or not chosen:
        lacking = [suite.name for suite in suites if {*absent} - {*suite.measures}]
        lacking = lacking or [suite.name for suite in suites]
        where = "on every collection of" if first.suite else "among the measures of"
        raise InputError(
            f"{', '.join(absent)} is not {where} {', '.join(lacking)}"
            if chosen
            else f"no measure is in all of {', '.join(lacking)}",
            allowed=", ".join(shared)
            or "; ".join(f"{each.name} has {', '.join(each.measures)}" for each in suites),
            fix="add it to evaluate.measures and run again; nothing else is computed again",
        )
    aligned = [suite.values(chosen, order=first) for suite in suites]
    return chosen, [np.stack(values, axis=1) for values in zip(*aligned, strict=True)], shared


def most_lost(suite: Result, measures: Sequence[str], values: Sequence[Float64]) -> Float64:
    """float64 [measures]: how much a query can lose, of values as of `shared_values`.

    That is the highest value of a measure; where it has none, the highest that was seen.
    """
    highest, seen = suite.highest(measures), np.max([each.max(axis=(0, 1)) for each in values], axis=0)
    return np.where(np.isfinite(highest), highest, seen)


def notes_of(suites: Sequence[Result], measure: str, pairs: Places) -> list[str]:
    """What to know before trusting a comparison, a sentence each without its full stop.

    What holds for every collection, or on a collection for every result, is said once.
    """
    first, names = suites[0], [suite.name for suite in suites]
    found: dict[str, list[str]] = {}  # the collections, by note
    for results in zip(*(suite.matching(first) for suite in suites), strict=True):
        ours = results[0]
        said = [each.record.model_copy(update={"ties": None}).notes for each in results]
        notes = [note for note in said[0] if all(note in each for each in said)]
        for name, own in zip(names, said, strict=True):
            notes += [f"{name}: {note}" for note in own if note not in notes]
        for name, other in zip(names[1:], results[1:], strict=True):
            both = ours, other
            sizes = " and ".join(f"{each.record.passages:,}" for each in both)
            # a run file has no settings
            scored = [each.manifest.recipes.get("evaluate", {}) for each in both]
            compared: dict[str, list[object]] = {
                f"searched different passages, {sizes}: their difference is not the model's alone": [
                    (each.record.passages, each.sources.get("corpus")) for each in both
                ],
                "have the query texts from different files": [each.sources.get("queries") for each in both],
                "were scored with different values of evaluate.ignore_identical_ids": [
                    each.get("ignore_identical_ids") or "none" for each in scored
                ],
                "were scored with different values of data.ignored": [
                    each.get("ignored") or "none" for each in scored
                ],
            }
            notes += [f"{names[0]} and {name} {what}" for what, (one, two) in compared.items() if one != two]
        for note in notes:
            found.setdefault(note, []).append(ours.name)
    notes = [main_measures_note(first.main_measures)] if measure == MAIN else []
    held = Counter(query for result in first.collections for query in result.query_ids)
    if shared := sum(times > 1 for times in held.values()):
        ids = "1 query id is" if shared == 1 else f"{shared:,} query ids are"
        notes.append(f"{ids} in several collections: each counts as one query")
    for note, where in found.items():
        notes.append(note if len(where) == len(first.collections) else f"{', '.join(where)}: {note}")
    # a speed depends on the processors and the threads; the last run's machine is known of all results
    machines = [
        {
            (number, row.stage): (machine.cpu, machine.cores, machine.gpus, row.threads)
            for number, result in enumerate(suite.matching(first))
            for row in result.record.stages
            for machine in (row.hardware or result.manifest.hardware,)
            if row.seconds is not None
        }
        for suite in suites
    ]
    for name, theirs in zip(names[1:], machines[1:], strict=True):
        unlike = [stage for stage, machine in machines[0].items() if theirs.get(stage, machine) != machine]
        if unlike:
            stages = ", ".join(dict.fromkeys(stage for _, stage in unlike))
            notes.append(
                f"{names[0]} and {name} computed {stages} on different hardware or with other numbers of "
                "threads: these speeds do not compare"
            )
    records = [suite.record for suite in suites]
    for a, b in pairs:
        shares = [each.judged for number in (a, b) if (each := records[number].unjudged.get(measure))]
        if len(shares) < 2:
            continue
        difference = abs(records[a].metrics[measure] - records[b].metrics[measure])
        if difference < abs(shares[0] - shares[1]):
            notes.append(
                f"{names[a]} and {names[b]} differ by {difference:.4f}, less than the judged shares of what "
                f"they found, {shares[0]:.4f} and {shares[1]:.4f}: missing judgments may decide "
                "(benchmarco pool)"
            )
    return notes


def draw_order(query_ids: Sequence[str], seed: int) -> Int64:
    """int64 [queries]: all rows in the order in which they are drawn."""
    digests = [sha256(f"{seed} {query}".encode()).digest() for query in query_ids]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)
