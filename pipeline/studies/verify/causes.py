"""Causes of a difference from published scores: each is a change, which is made and measured.

What usually differs between tools is a table: changes of the evaluation (`EVALUATION`), which are tried on
the finished ranking, and of settings (`settings_to_try`), which are run. A change explains scores if it gives
all that it moves to the last published digit. The search goes on while chance may have given those digits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pipeline.config import Config
from pipeline.core.display import Progress
from pipeline.core.records import JsonObject
from pipeline.core.result_records import Record
from pipeline.metrics.names import parse_measure
from pipeline.results.published import ScoreCheck
from pipeline.storage.whole_files import temporary_folder
from pipeline.studies.verify.fit import Fit, Means
from pipeline.studies.verify.scored_run import EVALUATION, ScoredRun
from pipeline.studies.verify.trials import Trials

APART = ("ndcg@10", "ndcg@100", "map@100", "mrr@10", "recall@10", "recall@100", "precision@10", "success@1")
"""Measures of which one may tell candidates apart."""
PLACES = 5  # to which candidates must differ to be told apart


class ScoreChange(Record):
    """A change that was tried to explain a difference, and what it gives."""

    change: str
    got: float
    difference: float


class TellingMeasure(Record):
    """A measure that tells changes apart which explain a score alike: its value with each."""

    measure: str
    values: dict[str, float]


class ExplainedScore(ScoreCheck):
    """A published score and the measured one, with what was tried to explain a difference.

    Attributes:
        why: Changes that were tried and move the score, the nearest first; None where none was asked for.
        not_tried: Changes that were not tried, in the order in which they would be.
        explained_by: Changes that give the published digits of this score and of all others that they move.
        telling: A measure that tells these apart, where there are several.
    """

    why: tuple[ScoreChange, ...] | None = None
    not_tried: tuple[str, ...] = ()
    explained_by: tuple[str, ...] = ()
    telling: TellingMeasure | None = None

    @classmethod
    def of(cls, checks: Iterable[ScoreCheck]) -> list[ExplainedScore]:
        """The checks, for which nothing was tried unless it is said."""
        return [check if isinstance(check, cls) else cls(**dict(check)) for check in checks]

    def document(self) -> JsonObject:
        """Without what was tried, where nothing was."""
        added = set(ExplainedScore.model_fields) - set(ScoreCheck.model_fields)
        return self.model_dump(mode="json", exclude=added if self.why is None else None)


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
    sets = [scores for scores in _sets(compared) if any(each.verdict == "not reproduced" for each in scores)]
    explained: dict[int, ScoreCheck] = {}
    for number, scores in enumerate(sets):
        until = time.monotonic() + (deadline - time.monotonic()) / (len(sets) - number)
        checks = _explained(scores, scored_run, config, until, progress)
        explained |= {id(cell): check for cell, check in zip(scores, checks, strict=True)}
    return [explained.get(id(cell), cell) for cell in cells]


def _sets(cells: Sequence[ScoreCheck]) -> list[list[ScoreCheck]]:
    """The scores that one change must explain together: all, or of each source if a measure has several."""
    several = len({cell.measure for cell in cells}) < len(cells)
    sets: dict[str, list[ScoreCheck]] = {}
    for cell in cells:
        sets.setdefault(cell.source if several else "", []).append(cell)
    return [*sets.values()]


def _explained(
    scores: Sequence[ScoreCheck],
    scored_run: ScoredRun,
    config: Config | None,
    deadline: float,
    progress: Progress,
) -> list[ScoreCheck]:
    """Scores that one cause must explain, those that are not reproduced with what was tried."""
    names = [*dict.fromkeys(cell.measure for cell in scores)]
    fit = Fit(scores, scored_run.means(names))
    for change, make in EVALUATION.items():
        changed = make(scored_run)
        if changed and (means := changed.means(names)) != fit.base:
            fit.measured[change] = means
    if config is None:
        return _with_causes(fit, [], _telling(fit, scored_run, None, APART))
    with temporary_folder() as place, progress("causes", None, "change") as bar:
        trials = Trials(config, scored_run, deadline, bar, Path(place), fit)
        not_tried = trials.run()
        names = [name for name in APART if (parse_measure(name).cutoff or 0) <= config.search.top_k]
        return _with_causes(fit, not_tried, _telling(fit, scored_run, trials, names))


def _with_causes(fit: Fit, not_tried: Sequence[str], telling: TellingMeasure | None) -> list[ScoreCheck]:
    """The scores with the changes that move them: those that explain them, then the nearest to all scores."""
    names = {name: name for name in fit.nearest(fit.measured)}
    names |= {name: f"{name} (estimated on a sample)" for name in fit.nearest(fit.estimated)}
    means = fit.measured | fit.estimated
    checks = []
    for cell in fit.scores:
        if cell.verdict == "not reproduced":
            explaining = fit.candidates(cell)
            order = [*explaining, *(name for name in names if name not in explaining)]
            why = [
                ScoreChange(
                    change=names[name], got=means[name][cell.measure],
                    difference=means[name][cell.measure] - cell.expected,
                )
                for name in order
                if fit.moves(means[name], cell.measure)
            ]  # fmt: skip
            cell = ExplainedScore.of([cell])[0].model_copy(
                update={
                    "why": tuple(why), "not_tried": tuple(not_tried), "explained_by": tuple(explaining),
                    "telling": telling if len(explaining) > 1 else None,
                }
            )  # fmt: skip
        checks.append(cell)
    return checks


def _telling(
    fit: Fit, scored_run: ScoredRun, trials: Trials | None, names: Sequence[str]
) -> TellingMeasure | None:
    """The measure that tells most candidates apart, with the value that each gives it; None if none does."""
    candidates = [change for change in fit.nearest(fit.measured) if fit.explained(change)]
    if len(candidates) < 2:
        return None
    names = [name for name in names if name not in fit.base]
    values: dict[str, Means] = {}
    for change in candidates:
        if change in EVALUATION:
            changed = EVALUATION[change](scored_run)
            means: Means | None = changed.means(names) if changed else None
        else:
            means = trials.measure_anew(change, names) if trials else None
        if means:
            values[change] = means
    apart = {name: {change: round(means[name], PLACES) for change, means in values.items()} for name in names}
    name = max(apart, key=lambda each: (len({*apart[each].values()}), _spread(apart[each])))
    return TellingMeasure(measure=name, values=apart[name]) if _spread(apart[name]) else None


def _spread(values: Mapping[str, float]) -> float:
    return max(values.values()) - min(values.values())
