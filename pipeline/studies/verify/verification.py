"""Whether published scores are reproduced: of a config that is run, a finished result, or a TREC run.

verify(run="run.trec", qrels="qrels.tsv", expected=["cacm.yaml"]).verdict
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from itertools import combinations
from pathlib import Path

import numpy as np

from pipeline.config import Config, of_each_collection
from pipeline.config.files import load_configs, make_config, settings_of, with_overrides
from pipeline.core.display import Progress, counted, silent
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.core.result_files import MANIFEST, METRICS, SUITE
from pipeline.core.table import Column, FilledColumn, Table, Tabular, right, table_of
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import read_run
from pipeline.metrics.evaluation import evaluate_files
from pipeline.metrics.names import parse_measure
from pipeline.metrics.paired import SAME
from pipeline.results.folder import CollectionResult
from pipeline.results.published import (
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
from pipeline.run.benchmark import Session
from pipeline.run.running import prepare, run_each
from pipeline.studies.shared.mteb_tasks import task_of
from pipeline.studies.verify.causes import ExplainedScore, ScoreChange, explain
from pipeline.studies.verify.contradictions import Point, contradictions, point_of
from pipeline.studies.verify.fit import gives
from pipeline.studies.verify.published_files import PublishedScore, read_published, select_scores
from pipeline.studies.verify.scored_run import ScoredRun, measure_anew, scored_run_of

EXIT_CODES: dict[Verdict, int] = {"reproduced": 0, "not reproduced": 3, "not comparable": 4, "not run": 4}
TREC_DEPTH = 1000
"""Hits of a query that a published measure without a cutoff is taken to see: trec_eval's usual input."""
TRIED = 10
"""Changes that a table lists."""
NOT_TRIED = 3
"""Changes that a note names of those that were not tried."""
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
        order: tuple[Verdict, ...] = ("not reproduced", "not comparable", "not run")
        return next((each for each in order if each in verdicts), "reproduced")

    def json(self) -> JsonObject:
        """The document that `verify --json` prints."""
        return {
            "cells": [cell.document() for cell in self.cells],
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
        published: dict[tuple[str, str], dict[Point, tuple[float, float]]] = {}
        for cell in self.cells:
            of_place = published.setdefault((cell.model, cell.collection), {})
            of_place[point_of(cell.measure)] = cell.expected, 0.5 * 10.0 ** -decimals(cell.expected)
        return [
            f"Published for {' on '.join(place)}, but impossible together: {each.values} ({each.reason})."
            for place, scores in published.items()
            for each in contradictions(scores)
        ]

    def exchanged(self) -> list[str]:
        """Models or collections for each of which the scores measured for the other are published."""
        wrong = defaultdict[str, dict[str, ExplainedScore]](dict)
        for cell in self.cells:
            if cell.verdict == "not reproduced":
                wrong[f"{cell.model} on {cell.collection}"][cell.measure] = cell
        return [
            f"The scores published for {first} and for {second} may be exchanged: each reproduces what was "
            "measured for the other."
            for (first, a), (second, b) in combinations(wrong.items(), 2)
            if a.keys() == b.keys()
            and all(abs((a[name].got or 0) - b[name].expected) <= b[name].tolerance + SAME for name in a)
            and all(abs((b[name].got or 0) - a[name].expected) <= a[name].tolerance + SAME for name in a)
        ]

    def _why(self) -> list[Table]:
        """A table for the scores of a model and a collection that the same changes explain, or none."""
        together: dict[tuple[str, ...], list[ExplainedScore]] = {}
        for cell in self.cells:
            if cell.why is not None and cell.verdict == "not reproduced":
                together.setdefault((cell.model, cell.collection, *cell.explained_by), []).append(cell)
        return [_tried_table(cells, len(together) > 1) for cells in together.values()]


def _today() -> dict[str, str]:
    """The date, and the version of this package."""
    return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "version": metadata.version("benchmarco")}


def _tried_table(cells: Sequence[ExplainedScore], named: bool) -> Table:
    """The changes that were tried for scores of one model and collection, by what they make of the worst.

    `named` says to name the model and the collection too.
    """
    worst = max(cells, key=lambda cell: abs(cell.difference or 0))
    why = [tried for tried in worst.why or () if not tried.estimated]
    guessed = [tried.change for tried in worst.why or () if tried.estimated]
    shown, form = why[:TRIED], f"+.{min(max(worst.digits, 4), 6)}f"
    columns: list[FilledColumn] = [
        (Column("change"), [tried.change for tried in shown]),
        (right("got"), [score_figure(tried.got, worst) for tried in shown]),
        (right("difference", form=form), [tried.difference for tried in shown]),
    ]
    notes = []
    others = ", ".join(cell.measure for cell in cells if cell is not worst)
    if others:
        notes.append(f"The same holds for {others}.")
    if why[TRIED:]:
        notes.append(f"Tried as well, further away: {', '.join(tried.change for tried in why[TRIED:])}.")
    if guessed:
        notes.append(f"On a sample alone, and so not excluded: {', '.join(guessed[:TRIED])}.")
    if worst.not_tried:
        more = counted(len(worst.not_tried), "change was", "changes were")
        first = ", ".join(worst.not_tried[:NOT_TRIED])
        notes.append(
            f"{more} not tried; the next would be {first} (--json lists all; --minutes N tries more)."
        )
    place = f"{worst.model} on {worst.collection}, " if named else ""
    return table_of(place + _explanation(worst), columns, notes)


def _explanation(cell: ExplainedScore) -> str:
    """What explains a score, or what comes nearest."""
    candidates = cell.explained_by
    if len(candidates) > 1:
        return f"{cell.measure}: {len(candidates)} changes give the published digits, each a candidate"
    measured = [tried for tried in cell.why or () if not tried.estimated]
    if not measured:
        return f"{cell.measure}: nothing that was tried changes it"
    nearest = measured[0]
    places = min(max(cell.digits, 4), 6)
    left = f"{abs(nearest.difference):.{places}f} instead of {abs(cell.difference or 0):.{places}f}"
    if candidates:
        return f"{cell.measure}: explained by {candidates[0]} (difference {left})"
    if abs(nearest.got - (cell.got or 0)) <= cell.tolerance:
        return f"{cell.measure}: nothing that was tried explains it, or moves it by more than the tolerance"
    return f"{cell.measure}: nothing that was tried explains it; nearest: {nearest.change} (leaves {left})"


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
        reason = not_comparable(config, parse_measure(each.measure), each.split)
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


def cells_of_results(
    folder: Path, published: Sequence[PublishedScore]
) -> list[tuple[CollectionResult, list[ScoreCheck]]]:
    """The verdicts on the scores of a result folder: for each collection its result and cells."""
    found = []
    whole = read_result(folder)
    for result in whole.collections:
        config = make_config(result.manifest.config_here(), result.folder / MANIFEST, given=None)
        if whole.suite:
            config = config.model_copy(update={"name": result.name})
        config, others = expected_of(config, published, in_suite=whole.suite is not None)
        found.append((result, check_expected(config, _means(config, result), ABSENT) + others))
    require_scores([cell for _, cells in found for cell in cells], str(folder))
    return found


def _means(config: Config, result: CollectionResult) -> dict[str, float]:
    """The means of a result, with those of other expected measures that its ranking is deep enough for."""
    others = [
        measure
        for measure in dict.fromkeys(parse_measure(each.measure) for each in config.expected)
        if str(measure) not in result.record.metrics and (measure.cutoff or TREC_DEPTH) <= config.search.top_k
    ]
    return {**result.record.metrics, **((measure_anew(result, others) or {}) if others else {})}


def verify_run(run: Path, qrels: Path, published: Sequence[PublishedScore]) -> list[ScoreCheck]:
    """Compare the scores of a TREC run.

    A measure that needs more hits than the run has is not comparable: one without a cutoff needs as many as
    trec_eval is usually given.
    """
    for attribute in ("model", "collection"):
        names = sorted({getattr(each, attribute) for each in published})
        if len(names) > 1:
            published = select_scores(published, [run.name.partition(".")[0], run.parent.name], [qrels.stem])
            if len({getattr(each, attribute) for each in published}) == 1:
                continue
            raise InputError(
                f"the published scores are of {len(names)} {attribute}s: {', '.join(names[:10])}",
                allowed="those of one run",
                fix="give a CSV file with the lines that are meant",
            )
    measures = [parse_measure(each.measure) for each in published]
    scored = evaluate_files(qrels, run, list(dict.fromkeys(measures)))
    depth = int(np.bincount(read_run(run).queries).max())
    cells = []
    for each, measure in zip(published, measures, strict=True):
        deeper = (measure.cutoff or TREC_DEPTH) > depth
        reason = f"the run holds at most {depth:,} hits of a query" if deeper else ""
        got = scored.mean_by_measure[str(measure)]
        cells.append(
            check_score(each.score, got, reason, each.model or run.name, each.collection or qrels.stem)
        )
    require_scores(cells, str(run))
    return cells


def require_scores(scores: Sequence[object], where: str) -> None:
    """Refuse to verify nothing."""
    if not scores:
        raise InputError(
            f"{where}: no published score to compare with",
            allowed="scores from --expected FILE, or the section 'expected' of a config",
            fix="add --expected FILE",
        )


@dataclass
class CollectionChecks:
    """The verdicts on the scores of one collection; config and result folder where it was run."""

    cells: list[ScoreCheck]
    config: Config | None = None
    folder: Path | None = None


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
    if run and qrels:
        if not published:
            raise InputError("--run without --expected", allowed="--expected FILE", fix="name the scores")
        run, qrels = Path(run), Path(qrels)
        cells = verify_run(run, qrels, published)
        if minutes:
            scored_run = ScoredRun(read_run(run), read_qrels(qrels))
            cells = explain(cells, scored_run, None, minutes, progress)
        return Verification(ExplainedScore.of(cells))
    checks: list[CollectionChecks] = []
    for target in paths:
        if target in results:
            for result, cells in cells_of_results(target, published):
                config = None
                if minutes:  # its settings are run
                    settings, manifest = result.manifest.config_here(), result.folder / MANIFEST
                    settings = with_overrides(settings, overrides)
                    config = make_config(settings, manifest, given=[*settings_of(overrides), "output"])
                checks.append(CollectionChecks(cells, config, result.folder))
        else:
            checks += run_configs(load_configs(target, overrides), published, progress)
    if minutes:
        _explain_all(checks, minutes, progress)
    return Verification(ExplainedScore.of(cell for each in checks for cell in each.cells))


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
    measured = []
    with Session() as session:
        # a collection of a suite, `SUITE/COLLECTION`, as a benchmark whose name is a folder's
        wanted = [
            config.model_copy(update={"name": config.name.rpartition("/")[2]})
            for config, _ in given
            if config.expected
        ]
        for outcome in run_each(prepare(wanted, None, progress, session), progress, session):
            if outcome.result:
                cells = check_expected(outcome.config, outcome.result.metrics)
                measured.append(CollectionChecks(cells, outcome.config, outcome.result.folder))
            else:
                cells = [
                    check_score(each, None, "", outcome.config.label).model_copy(
                        update={"reason": str(outcome.error)}
                    )
                    for each in outcome.config.expected
                ]
                measured.append(CollectionChecks(cells))
    return [*measured, *(CollectionChecks(others) for _, others in given if others)]


def _swap(first: CollectionChecks, second: CollectionChecks) -> None:
    """Explain the scores of two collections by each other's, where those give the published digits."""
    mine, theirs = ({cell.measure: cell for cell in each.cells} for each in (first, second))
    shared = [name for name in mine if name in theirs]
    pairs = [(mine[name], theirs[name]) for name in shared]
    wrong = [pair for pair in pairs if all(cell.verdict == "not reproduced" for cell in pair)]
    if not wrong or not all(
        one.got is not None and other.got is not None and gives(one.got, other) and gives(other.got, one)
        for one, other in wrong
    ):
        return
    change = f"the published scores of {wrong[0][0].collection} and {wrong[0][1].collection} swapped"
    for checks, others in ((first, theirs), (second, mine)):
        checks.cells = [
            ExplainedScore.explained(
                cell, [ScoreChange(change=change, got=got, difference=got - cell.expected)], [change]
            )
            if cell.verdict == "not reproduced" and (got := others[cell.measure].got) is not None
            else cell
            for cell in checks.cells
        ]


def _explain_all(measured: Sequence[CollectionChecks], minutes: float, progress: Progress) -> None:
    """Explain what is not reproduced, one collection after the other.

    Each has an equal part of the time that is left, so that what one does not use goes to the next ones.
    """
    for first, second in combinations(measured, 2):
        _swap(first, second)
    waiting = [
        each
        for each in measured
        if any(
            cell.verdict == "not reproduced" and not isinstance(cell, ExplainedScore) for cell in each.cells
        )
    ]
    deadline = time.monotonic() + 60 * minutes
    for number, each in enumerate(waiting):
        if each.config and each.folder:
            share = (deadline - time.monotonic()) / 60 / (len(waiting) - number)
            scored_run = scored_run_of(each.config, each.folder)
            each.cells = explain(each.cells, scored_run, each.config, share, progress)
