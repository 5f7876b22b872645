"""Causes of a difference from published scores: each is a change, which is made and measured.

What usually differs between tools is a table: changes of the evaluation (`EVALUATION`), which are tried on
the finished ranking, and of settings (`settings_to_try`), which are run. A change explains scores if it gives
all that it moves to the last published digit. The search goes on while chance may have given those digits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.config import Config
from pipeline.core.display import Progress
from pipeline.core.result_records import Record
from pipeline.results.published import ScoreCheck
from pipeline.storage.whole_files import temporary_folder
from pipeline.studies.verify.fit import Fit
from pipeline.studies.verify.scored_run import EVALUATION, ScoredRun
from pipeline.studies.verify.trials import Trials


class ScoreChange(Record):
    """A change that was tried to explain a difference, and what it gives."""

    change: str
    got: float
    difference: float
    estimated: bool = False  # on a sample alone


class ExplainedScore(ScoreCheck):
    """A published score and the measured one, with what was tried to explain a difference."""

    # Changes that were tried and move the score, the nearest first; None where none was asked for.
    why: tuple[ScoreChange, ...] | None = None
    not_tried: tuple[str, ...] = ()  # changes that were not tried, in the order in which they would be
    # Changes that give the published digits of this score and of all others that they move.
    explained_by: tuple[str, ...] = ()


def explain(
    cells: Sequence[ScoreCheck],
    scored_run: ScoredRun,
    config: Config | None,
    minutes: float,
    progress: Progress,
) -> list[ScoreCheck]:
    """Cells of one model and collection, with what was tried for those that are not reproduced.

    The nearest comes first: by the mean distance from all scores that were compared. Where a measure has
    several scores, those of each source are explained by themselves, and share the time. What was estimated
    from a sample alone comes after what was measured. Without time left, the evaluation alone is tried.
    """
    deadline = time.monotonic() + 60 * minutes
    compared = [cell for cell in cells if cell.got is not None and not cell.reason]
    several = len({cell.measure for cell in compared}) < len(compared)
    together: dict[str, list[ScoreCheck]] = {}  # what one change must explain
    for cell in compared:
        together.setdefault(cell.source if several else "", []).append(cell)
    sets = [each for each in together.values() if any(cell.verdict == "not reproduced" for cell in each)]
    explained: dict[int, ScoreCheck] = {}
    for number, scores in enumerate(sets):
        until = time.monotonic() + (deadline - time.monotonic()) / (len(sets) - number)
        names = [*dict.fromkeys(cell.measure for cell in scores)]
        fit = Fit(scores, scored_run.means(names))
        for change, make in EVALUATION.items():
            changed = make(scored_run)
            if changed and (means := changed.means(names)) != fit.base:
                fit.measured[change] = means
        not_tried: list[str] = []
        if config:
            with temporary_folder() as place, progress("causes", None, "change") as bar:
                not_tried = Trials(config, scored_run, until, bar, Path(place), fit).run()
        explained |= {
            id(cell): _with_causes(cell, fit, not_tried)
            for cell in scores
            if cell.verdict == "not reproduced"
        }
    return [explained.get(id(cell), cell) for cell in cells]


def _with_causes(cell: ScoreCheck, fit: Fit, not_tried: Sequence[str]) -> ExplainedScore:
    """A score with the changes that move it: those that explain it, then the nearest to all scores."""
    means, nearest = fit.measured | fit.estimated, fit.nearest(fit.measured)
    explaining = [name for name in nearest if cell in fit.explained(name)]
    others = [name for name in (*nearest, *fit.nearest(fit.estimated)) if name not in explaining]
    why = [
        ScoreChange(
            change=name, got=means[name][cell.measure],
            difference=means[name][cell.measure] - cell.expected, estimated=name in fit.estimated,
        )
        for name in (*explaining, *others)
        if fit.moves(means[name], cell.measure)
    ]  # fmt: skip
    tried = {"why": tuple(why), "not_tried": tuple(not_tried), "explained_by": tuple(explaining)}
    return ExplainedScore(**dict(cell), **tried)
