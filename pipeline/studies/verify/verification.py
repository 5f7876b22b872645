"""Whether published scores are reproduced: of a config that is run, a finished result, or a TREC run.

verify(run="run.trec", qrels="qrels.tsv", expected=["cacm.yaml"]).verdict
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from itertools import combinations
from pathlib import Path

import numpy as np

from pipeline.api import run_benchmarks
from pipeline.config import Config, of_each_collection
from pipeline.config.files import apply_override, load_configs, make_config
from pipeline.core.display import Progress, counted, silent
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.core.table import Column, FilledColumn, Table, Tabular, right, table_of
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import read_run
from pipeline.metrics.definitions import parse_measure
from pipeline.metrics.evaluation import evaluate
from pipeline.metrics.paired import SAME
from pipeline.results.folder import CollectionResult
from pipeline.results.published import (
    VERDICTS,
    ScoreCheck,
    Verdict,
    check_expected,
    check_score,
    collection_name,
    decimals,
    not_comparable,
)
from pipeline.results.result import read_result
from pipeline.results.tables import published_table, score_figure
from pipeline.run.benchmark import Benchmark, Session
from pipeline.storage.whole_files import MANIFEST, METRICS, RANKING, SUITE
from pipeline.studies.shared.cached import find_collection
from pipeline.studies.shared.mteb_tasks import task_of
from pipeline.studies.verify.causes import ExplainedScore, explain
from pipeline.studies.verify.contradictions import Point, contradictions, point_of
from pipeline.studies.verify.published_files import PublishedScore, read_published, select_scores
from pipeline.studies.verify.scored_run import ScoredRun, scored_run_of

EXIT_CODES: dict[Verdict, int] = {"reproduced": 0, "not reproduced": 3, "not comparable": 4, "not run": 4}
TREC_DEPTH = 1000
"""Hits of a query that a published measure without a cutoff is taken to see: trec_eval's usual input."""
TRIED, NOT_TRIED = 10, 3  # changes that a table lists, and that a note names of those that were not tried
ABSENT = (
    "not in the result, and not to be computed from its ranking: add it to evaluate.measures, and run again"
)


@dataclass(frozen=True, repr=False)
class Verification(Tabular):
    """The verdicts on published scores."""

    cells: list[ExplainedScore]
    command: str = ""  # the command line that prints this; empty if it was asked for in Python

    @property
    def verdict(self) -> Verdict:
        """The worst: not reproduced, then not comparable, then not run."""
        verdicts = {cell.verdict for cell in self.cells}
        return next((each for each in VERDICTS[1:] if each in verdicts), "reproduced")

    def json(self) -> JsonObject:
        """The document that `verify --json` prints."""
        return {
            # without what was tried, where nothing was
            "cells": [cell.model_dump(mode="json", exclude_unset=True) for cell in self.cells],
            "verdict": self.verdict,
            "contradictions": self.contradictions(),
            "exchanged": self.exchanged(),
            "command": self.command,
            **_today(),
        }

    def tables(self) -> list[Table]:
        """A published score a row; then what explains those that are not reproduced."""
        made = "{date}, benchmarco {version}".format(**_today())
        first = f"{made}: {self.command}" if self.command else made
        notes = [first, *self.contradictions(), *self.exchanged()]
        return [published_table(self.cells, notes=notes), *self._why()]

    def contradictions(self) -> list[str]:
        """What no single evaluation can have given of the scores published for a model and a collection."""
        published = defaultdict[str, dict[Point, tuple[float, float]]](dict)
        for cell in self.cells:
            rounding = 0.5 * 10.0 ** -decimals(cell.expected)
            published[_place(cell)][point_of(cell.measure)] = cell.expected, rounding
        return [
            f"Published for {place}, but impossible together: {each.values} ({each.reason})."
            for place, scores in published.items()
            for each in contradictions(scores)
        ]

    def exchanged(self) -> list[str]:
        """A sentence for each two places whose published scores may be exchanged."""
        return [
            f"The scores published for {first} and for {second} may be exchanged: each reproduces what was "
            "measured for the other."
            for first, second in exchanged_places(self.cells)
        ]

    def _why(self) -> list[Table]:
        """A table for the scores of a model and a collection that the same changes explain, or none."""
        together: dict[tuple[str, ...], list[ExplainedScore]] = {}
        for cell in self.cells:
            if cell.why is not None and cell.verdict == "not reproduced":
                together.setdefault((cell.model, cell.collection, *cell.explained_by), []).append(cell)
        return [_tried_table(cells, len(together) > 1) for cells in together.values()]


def exchanged_places(cells: Iterable[ScoreCheck]) -> list[tuple[str, str]]:
    """Pairs of models or of collections whose published scores seem to be swapped."""
    wrong = defaultdict[str, dict[str, ScoreCheck]](dict)
    for cell in cells:
        if cell.verdict == "not reproduced":
            wrong[_place(cell)][cell.measure] = cell
    return [
        (first, second)
        for (first, a), (second, b) in combinations(wrong.items(), 2)
        if a.keys() == b.keys()
        and all(
            abs((one[name].got or 0) - other[name].expected) <= other[name].tolerance + SAME
            for one, other in ((a, b), (b, a))
            for name in a
        )
    ]


def _place(cell: ScoreCheck) -> str:
    return f"{cell.model} on {cell.collection}"


def _today() -> dict[str, str]:
    """The date, and the version of this package."""
    return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "version": metadata.version("benchmarco")}


def _tried_table(cells: Sequence[ExplainedScore], named: bool) -> Table:
    """The changes that were tried for scores of one model and collection, by what they make of the worst.

    `named` says to name the model and the collection too.
    """
    worst = max(cells, key=lambda cell: abs(cell.difference or 0))
    measured = [tried for tried in worst.why or () if not tried.estimated]
    estimated = [tried.change for tried in worst.why or () if tried.estimated]
    shown, places = measured[:TRIED], min(max(worst.digits, 4), 6)
    columns: list[FilledColumn] = [
        (Column("change"), [tried.change for tried in shown]),
        (right("got"), [score_figure(tried.got, worst) for tried in shown]),
        (right("difference", form=f"+.{places}f"), [tried.difference for tried in shown]),
    ]
    notes = []
    others = ", ".join(cell.measure for cell in cells if cell is not worst)
    if others:
        notes.append(f"The same holds for {others}.")
    if estimated:
        notes.append(f"On a sample alone, and so not excluded: {', '.join(estimated[:TRIED])}.")
    if worst.not_tried:
        more = counted(len(worst.not_tried), "change was", "changes were")
        first = ", ".join(worst.not_tried[:NOT_TRIED])
        notes.append(
            f"{more} not tried; the next would be {first} (--json lists all; --minutes N tries more)."
        )
    if len(worst.explained_by) > 1:
        found = f"{len(worst.explained_by)} changes give the published digits, each a candidate"
    elif not measured:
        found = "nothing that was tried changes it"
    else:
        nearest = measured[0]
        left = f"{abs(nearest.difference):.{places}f} instead of {abs(worst.difference or 0):.{places}f}"
        found = f"nothing that was tried explains it; nearest: {nearest.change} (leaves {left})"
        if worst.explained_by:
            found = f"explained by {nearest.change} (difference {left})"
    place = f"{_place(worst)}, " if named else ""
    return table_of(f"{place}{worst.measure}: {found}", columns, notes)


@dataclass
class CollectionChecks:
    """The verdicts on the scores of one collection; config and result folder where it was run."""

    cells: list[ScoreCheck]
    config: Config | None = None
    folder: Path | None = None


def expected_of(
    config: Config, published: Sequence[PublishedScore], in_suite: bool = False
) -> tuple[Config, list[ScoreCheck]]:
    """A config of one collection with what is published of it, and the scores that cannot be compared.

    Of a collection in a suite, only scores under its name are taken, and there may be none.
    """
    names = [config.name.rpartition("/")[2], collection_name(config)]
    task = task_of(config.data.model_dump(mode="json"))
    names += [task[0].task] if task else []
    models = [config.label, config.made_by, config.name]
    split = str(getattr(config.data, "split", ""))
    cells, scores = [], [*config.expected]
    for each in select_scores(published, models, names, split, in_suite):
        reason = not_comparable(config, parse_measure(each.score.measure), each.split)
        if reason:
            cells.append(check_score(each.score, None, reason, config.label, collection_name(config)))
        elif each.score not in scores:  # a result of `verify` has those that it was compared with
            scores.append(each.score)
    if published and not cells and not scores and not in_suite:
        places = sorted({f"{each.model} on {each.collection}" for each in published})
        raise InputError(
            f"no published score is of {config.label} on {names[-1]}",
            allowed="; ".join(places[:5]) + ("; ..." if len(places) > 5 else ""),
            fix="give another file, or rename the benchmark or its collection",
        )
    return config.model_copy(update={"expected": tuple(scores)}), cells


def check_results(
    folder: Path, published: Sequence[PublishedScore], overrides: Sequence[str], to_run: bool
) -> list[CollectionChecks]:
    """The verdicts on the scores of a result folder; with its settings, if they are `to_run`."""
    checks = []
    whole = read_result(folder)
    for result in whole.collections:
        manifest, settings = result.folder / MANIFEST, copy.deepcopy(result.manifest.config)
        if cache := result.manifest.cache_here:
            settings["cache"] = cache
        config = make_config(settings, manifest, given=None)
        if whole.suite:
            config = config.model_copy(update={"name": result.name})
        config, others = expected_of(config, published, in_suite=whole.suite is not None)
        cells = check_expected(config, _means(config, result), ABSENT) + others
        checks.append(CollectionChecks(cells, folder=result.folder))
        if to_run:
            for override in overrides:
                apply_override(settings, override)
            checks[-1].config = make_config(settings, manifest, given=[*overrides, "output"])
    require_scores([cell for each in checks for cell in each.cells], str(folder))
    return checks


def _means(config: Config, result: CollectionResult) -> dict[str, float]:
    """The means of a result, with those of other expected measures that its ranking is deep enough for."""
    others = [
        str(measure)
        for measure in dict.fromkeys(parse_measure(each.measure) for each in config.expected)
        if str(measure) not in result.record.metrics and (measure.cutoff or TREC_DEPTH) <= config.search.top_k
    ]
    means = dict(result.record.metrics)
    if others and (result.folder / RANKING).is_file() and (collection := find_collection(result)):
        means |= scored_run_of(collection, result.folder).means(others)
    return means


def verify_run(run: Path, qrels: Path, published: Sequence[PublishedScore]) -> list[ScoreCheck]:
    """Compare the scores of a TREC run.

    A measure that needs more hits than the run has is not comparable: one without a cutoff needs as many as
    trec_eval is usually given.
    """
    chosen = select_scores(published, [run.name.partition(".")[0], run.parent.name], [qrels.stem])
    if len({(each.model, each.collection) for each in chosen}) != 1:
        places = sorted({f"{each.model} on {each.collection}" for each in published})
        raise InputError(
            f"the published scores are of {'; '.join(places[:10])}",
            allowed="those of one run",
            fix="give a CSV file with the lines that are meant",
        )
    measures = [parse_measure(each.score.measure) for each in chosen]
    scored = evaluate(qrels, run, [each.score.measure for each in chosen])
    depth = int(np.bincount(read_run(run).queries).max())
    cells = []
    for each, measure in zip(chosen, measures, strict=True):
        deeper = (measure.cutoff or TREC_DEPTH) > depth
        reason = f"the run holds at most {depth:,} hits of a query" if deeper else ""
        got = scored.mean_by_measure[str(measure)]
        cells.append(
            check_score(each.score, got, reason, each.model or run.name, each.collection or qrels.stem)
        )
    return cells


def require_scores(scores: Sequence[object], where: str) -> None:
    """Refuse to verify nothing."""
    if not scores:
        raise InputError(
            f"{where}: no published score to compare with",
            allowed="scores from --expected FILE, or the section 'expected' of a config",
            fix="add --expected FILE",
        )


def verify(
    targets: Sequence[str | Path] = (),
    *,
    expected: Sequence[str | Path] = (),
    run: str | Path | None = None,
    qrels: str | Path | None = None,
    why: bool = False,
    minutes: float = 10.0,
    overrides: Sequence[str] = (),
    progress: Progress = silent,
) -> Verification:
    """Compare measured with published scores.

    Args:
        targets: Config files, which are run, and result folders.
        expected: Files of published scores, see `read_published`; configs may have their own.
        run: A TREC run instead of targets, with `qrels`.
        qrels: Its judgments.
        why: Try what usually explains a score that is not reproduced.
        minutes: How long that may take, for all targets together.
        overrides: `key.path=value` strings for the configs.
        progress: Opens progress bars; none by default.

    Returns:
        The verdict on each published score.

    Raises:
        InputError: A file cannot be read, or has no score of what is verified.
    """
    paths = [Path(target) for target in targets]
    if not why:
        minutes = 0.0
    results = [each for each in paths if any((each / name).is_file() for name in (METRICS, SUITE))]
    if overrides and (run or (not minutes and len(results) == len(paths))):
        raise InputError(
            "--set, and nothing is run with settings",
            allowed="--set with a config, or with a result and --why",
            fix="leave --set out",
        )
    published = [each for file in expected for each in read_published(Path(file))]
    checks: list[CollectionChecks] = []
    if run and qrels:
        require_scores(published, str(run))
        run, qrels = Path(run), Path(qrels)
        cells = verify_run(run, qrels, published)
        if minutes:
            scored_run = ScoredRun(read_run(run), read_qrels(qrels))
            cells = explain(cells, scored_run, None, minutes, progress)
        checks.append(CollectionChecks(cells))
    for target in paths:
        if target in results:
            checks += check_results(target, published, overrides, to_run=minutes > 0)
        else:
            checks += run_configs(load_configs(target, overrides), published, progress)
    if minutes:
        _explain_all(checks, minutes, progress)
    cells = [cell for each in checks for cell in each.cells]
    return Verification(
        [cell if isinstance(cell, ExplainedScore) else ExplainedScore(**dict(cell)) for cell in cells]
    )


def run_configs(
    configs: Sequence[Config], published: Sequence[PublishedScore], progress: Progress
) -> list[CollectionChecks]:
    """Run each collection of configs that has published scores, and compare."""
    given = [
        expected_of(one, published, in_suite=bool(config.members))
        for config in configs
        for one in of_each_collection([config])
    ]
    require_scores(
        [each for config, others in given for each in (*config.expected, *others)], configs[0].name
    )
    # a collection of a suite, `SUITE/COLLECTION`, as a benchmark whose name is a folder's
    wanted = [
        config.model_copy(update={"name": config.name.rpartition("/")[2]})
        for config, _ in given
        if config.expected
    ]
    measured = []
    for outcome in run_benchmarks(wanted, progress=progress):
        result = outcome.result
        cells = [
            cell.model_copy(update={"reason": str(outcome.error)}) if cell.verdict == "not run" else cell
            for cell in check_expected(outcome.config, result.metrics if result else {})
        ]
        measured.append(CollectionChecks(cells, outcome.config, result.folder if result else None))
    return [*measured, *(CollectionChecks(others) for _, others in given if others)]


def _explain_all(measured: Sequence[CollectionChecks], minutes: float, progress: Progress) -> None:
    """Explain what is not reproduced, unless scores may be exchanged, one collection after the other.

    Each has an equal part of the time that is left, so that what one does not use goes to the next ones.
    """
    cells = [cell for each in measured for cell in each.cells]
    swapped = {place for pair in exchanged_places(cells) for place in pair}
    waiting = [
        (each, each.config, each.folder)
        for each in measured
        if each.config
        and each.folder
        and any(cell.verdict == "not reproduced" and _place(cell) not in swapped for cell in each.cells)
    ]
    deadline = time.monotonic() + 60 * minutes
    for number, (each, config, folder) in enumerate(waiting):
        share = (deadline - time.monotonic()) / 60 / (len(waiting) - number)
        with Session() as session:
            scored_run = scored_run_of(Benchmark(config, session).collection, folder)
        each.cells = explain(each.cells, scored_run, config, share, progress)
