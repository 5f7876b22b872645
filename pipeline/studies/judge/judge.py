"""Differences between results by a judge's grades and people's: the estimate, and how good the judge is.

request = prepare(config, folders, labels=Path("pool.tsv"))  # what would be asked; nothing is yet
request.tokens, request.price
decide(request, progress).tables()

The judge's grades and people's are never merged. The judge grades every pair that can change a difference, of
all queries, also those that people have graded; its differences sharpen those of the drawn queries
(`pipeline.studies.judge.prediction_powered`), and say nothing of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.comparison.inputs import ResultLike
from pipeline.config import Config
from pipeline.core.display import Number, Progress, counted
from pipeline.core.errors import InputError
from pipeline.core.records import Array, Facts, Float64, Int64, JsonObject, Qrels
from pipeline.core.table import Column, FilledColumn, Table, Tabular, right, table_of
from pipeline.encoders.http.client import BYTES_PER_TOKEN
from pipeline.metrics.definitions import Measure
from pipeline.metrics.statistics import CONFIDENCE
from pipeline.studies.judge.bets_in_order import BetsInOrder
from pipeline.studies.judge.grading import ask, family_of, grade_log, pair_key, prompt_of
from pipeline.studies.judge.pool import rows_of_pairs
from pipeline.studies.judge.prediction_powered import (
    Interval,
    PredictionPoweredEstimate,
    estimate_with_judge,
)
from pipeline.studies.judge.sample import (
    HIGHEST_GRADE,
    Labels,
    decidable,
    note_of,
    open_rankings,
    read_labels,
)
from pipeline.studies.shared.judge_settings import JudgeSettings, require_judge
from pipeline.studies.shared.pools import (
    JudgmentPairs,
    LoadedResults,
    deciding_pairs,
    difference_ranges,
    pair_keys,
)
from pipeline.studies.study import Plan

SIDES = {1: "a", -1: "b", 0: "undecided"}
ANSWER_TOKENS = 4  # of a grade, for the estimate


@dataclass(frozen=True)
class JudgeRequest(Plan):
    """What a judge is asked, and what people said."""

    settings: JudgeSettings
    cache: Path
    opened: LoadedResults  # what is compared
    measure: Measure  # by what
    labels: Labels | None  # people's; None if none are given
    pairs: JudgmentPairs  # those that can change a difference, of all queries
    texts: list[tuple[str, str]]  # of each pair
    missing: int  # how many are not stored
    tokens: int  # an estimate for these

    @property
    def price(self) -> float | None:
        """What the missing pairs cost, in the currency of `judge.price`."""
        return None if self.settings.price is None else self.tokens * self.settings.price / 1e6

    def document(self, queries: int | None = None) -> JsonObject:
        """What `judge --plan --json` prints, and `plan --json` as `judge`."""
        return {
            "measure": str(self.measure),
            "queries": len(self.opened.collection.queries),
            "pairs": len(self.texts),
            "stored": len(self.texts) - self.missing,
            "tokens": self.tokens,
            "price": self.price,
        }

    def sentence(self, name: str = "", queries: int | None = None) -> str:
        """The same for people."""
        stored = len(self.texts) - self.missing
        price = "" if self.price is None else f", price about {self.price:,.2f}"
        return (
            f"{self.settings.model} grades {counted(len(self.texts), 'pair')} of "
            f"{counted(len(self.opened.collection.queries), 'query', 'queries')} for {self.measure}: "
            f"{stored:,} stored, {self.missing:,} to ask, about {self.tokens:,} tokens{price}"
        )


@dataclass(frozen=True)
class PairDecision:
    """Two results: their difference by the judge alone, and with people's labels.

    `decided` is after how many labels a look at each one decides, and the side; see `BetsInOrder.decided`.
    """

    a: str
    b: str
    judged: float
    estimate: PredictionPoweredEstimate | None = None
    decided: tuple[int, int] = (0, 0)

    @property
    def verdict(self) -> str:
        """The better one by people's and the judge's labels: "a", "b" or "undecided"; else "no labels".

        Where no interval is shown, only bets decide.
        """
        estimated = self.estimate
        if estimated is None:
            return "no labels"
        if estimated.unshown:
            return SIDES[self.decided[1]]
        return SIDES[int(estimated.by_both.ci_low > 0) - int(estimated.by_both.ci_high < 0)]


class Agreement(NamedTuple):
    """How far judge and people agree on the pairs that both graded."""

    kappa: float | None  # Cohen's, unweighted; None where there is one grade alone
    grades: list[float]  # the grades of either
    confusion: Int64  # int64 [grades, grades]: a row for each grade of people


@dataclass(frozen=True, repr=False)
class JudgeReport(Tabular):
    """The decisions between results."""

    request: JudgeRequest  # what was asked
    refused: int  # how many pairs the judge gave no grade
    decisions: list[PairDecision]  # for each pair of results
    agreement: Agreement | None  # none without people's labels of these pairs
    # How much the judge favours each result, by name, against the mean of all; without a judge's part. Empty
    # without people's labels.
    bias: dict[str, PredictionPoweredEstimate]
    related: dict[str, str]  # results of a model of the judge's family

    def json(self) -> list[Facts]:
        """The documents that `judge --json` prints, one for each pair of results."""
        documents = []
        for each in self.decisions:
            found = each.estimate
            both, alone = dict.fromkeys(Interval._fields), None
            if found:
                hidden = dict.fromkeys(("ci_low", "ci_high")) if found.unshown else {}
                both, alone = (made._asdict() | hidden for made in (found.by_both, found.without_judge))
            after, side = each.decided
            bias = {name: self.bias[name] for name in (each.a, each.b) if name in self.bias}
            documents.append(
                {
                    "measure": str(self.request.measure),
                    "a": each.a,
                    "b": each.b,
                    "queries": len(self.request.opened.collection.queries),
                    "labelled": found.labelled if found else 0,
                    "lambda": found.weight if found else None,
                    **both,
                    "without_judge": alone,
                    "judge_alone": each.judged,
                    "kappa": self.agreement.kappa if self.agreement else None,
                    "bias": {name: made.without_judge.difference for name, made in bias.items()},
                    "effective_labels": found.effective_labels if found else None,
                    "verdict": each.verdict,
                    "stopped": {"after": after or None, "verdict": SIDES[side]} if found else None,
                    "pairs": len(self.request.texts),
                    "refused": self.refused,
                }
            )
        return documents

    def tables(self) -> list[Table]:
        """The differences by the labels that each rests on; the judge's agreement with people; its bias."""
        tables = [self._differences()]
        if self.agreement:
            tables.append(_agreement_table(self.agreement))
        if self.bias:
            favours = self.bias.values()
            ends = [None if each.unshown else each.without_judge[1:] for each in favours]
            columns: list[FilledColumn] = [
                (Column("result"), self.bias),
                (right("favoured by", form="+.4f"), [each.without_judge.difference for each in favours]),
                (Column("95% interval", "right", form="+.4f"), ends),
            ]
            note = (
                f"In {self.request.measure}, against the mean of these results; labels: people's and judge's."
            )
            tables.append(table_of("does the judge favour a result?", columns, [note]))
        return tables

    def _differences(self) -> Table:
        words = partial(Column, wrap="words")
        columns = [
            words("results"),
            words("labels"),
            right("difference", form="+.4f"),
            right("95% interval", form="+.4f"),
            right("lambda", form=".2f"),
            right("worth labels", form=",.0f"),
            words("verdict"),
        ]
        rows: list[tuple[str | Number, ...]] = []
        for each in self.decisions:
            pair, found = f"{each.a} - {each.b}", each.estimate
            rows.append((pair, "judge's alone", each.judged, None, None, None, "decides nothing"))
            if found is None:
                continue
            people, both = (
                (made.difference, None if found.unshown else made[1:])
                for made in (found.without_judge, found.by_both)
            )
            better = {"a": f"{each.a} is better", "b": f"{each.b} is better"}.get(each.verdict, each.verdict)
            rows.append((pair, "people's alone", *people, None, found.labelled, ""))
            rows.append((pair, "people's and judge's", *both, found.weight, found.effective_labels, better))
        labels, total = self.request.labels, len(self.request.opened.collection.queries)
        known = f"{len(labels.queries):,} labelled by people" if labels else "none labelled by people"
        title = f"{self.request.measure}: {counted(total, 'query', 'queries')}, {known}"
        return table_of(title, zip(columns, zip(*rows, strict=True), strict=True), self._notes())

    def _notes(self) -> list[str]:
        request, labels = self.request, self.request.labels
        notes = [
            f"Judge: {request.settings.model} at {request.settings.url}, "
            f"{counted(len(request.texts), 'pair')}; {self.refused:,} without a grade count as 0."
        ]
        if labels is None:
            notes.append(
                "The judge alone decides nothing: label queries of benchmarco pool --decide, and name the "
                "file with --labels."
            )
        else:
            notes.append(
                "lambda: what the judge counts for, 0 to 1. worth labels: as many queries labelled by people "
                "alone would give an interval as narrow."
            )
            if any(result.clusters for result in request.opened.results.values()):
                notes.append("evaluate.cluster is not considered: labelled queries count one by one.")
            if labels.after:
                late = counted(labels.after, "labelled query", "labelled queries")
                notes.append(f"{late} not used: one before is unfinished.")
            for each in self.decisions:
                if each.estimate and each.estimate.unshown:
                    notes.append(
                        f"{each.a} - {each.b}: no interval: {each.estimate.unshown}. Only bets decide."
                    )
                if each.decided[0]:
                    better = each.a if each.decided[1] > 0 else each.b
                    notes.append(
                        f"{each.a} - {each.b}: looking after each labelled query decides for {better} after "
                        f"{each.decided[0]}. At most 5% of such decisions are wrong."
                    )
        for name, family in self.related.items():
            notes.append(
                f"Warning: the judge and {name} are both of {family}; judges tend to favour their own family."
            )
        if note := note_of(request.measure):
            notes.append(f"{note}.")
        return notes


def prepare(
    config: Config, folders: Sequence[ResultLike], labels: Path | None = None, measure: str | None = None
) -> JudgeRequest:
    """What the judge of a config is asked about results; nothing is asked yet.

    Args:
        config: With a section `judge`; answers are stored in its cache.
        folders: Two or more results of one collection.
        labels: A file of `pool --decide`, filled in.
        measure: None is that of `labels`, or else the config's first that judging can decide.

    Raises:
        InputError: There is no judge, or results, labels and measure do not belong together.
    """
    judge = require_judge(config)
    opened = open_rankings(folders, "judge")
    said = read_labels(opened, labels, judge.grades) if labels else None
    chosen = decidable(measure) if measure else said.measure if said else _first_decidable(config)
    if said and chosen != said.measure:
        raise InputError(
            f"--measure {chosen} with labels that were drawn for {said.measure}",
            allowed=str(said.measure),
            fix="leave --measure out",
        )
    pairs = deciding_pairs(opened, chosen)
    if not len(pairs.queries):
        raise InputError(
            f"{chosen} of {' and '.join(opened.results)} is the same whatever the grades",
            allowed="results that differ in their first ranks",
            fix="compare others, or a measure with a higher cutoff",
        )
    texts = [
        (row.query, row.passage) for row in rows_of_pairs(opened.collection, pairs.queries, pairs.passages)
    ]
    log = grade_log(Path(config.cache), judge, write=False)
    missing = list(dict.fromkeys(pair for pair in texts if pair_key(pair) not in log.answers))
    prompts = [len(prompt_of(judge, pair).encode()) / BYTES_PER_TOKEN for pair in missing]
    tokens = round(judge.repeats * (sum(prompts) + ANSWER_TOKENS * len(missing)))
    return JudgeRequest(judge, Path(config.cache), opened, chosen, said, pairs, texts, len(missing), tokens)


def decide(request: JudgeRequest, progress: Progress) -> JudgeReport:
    """Ask the judge for what is not stored, and decide between the results.

    Raises:
        InputError: The judge cannot be asked, or gives no grades.
    """
    with grade_log(request.cache, request.settings) as log, progress("judge", request.missing, "pair") as bar:
        grades = ask(request.settings, log, request.texts, bar)
    pairs = request.pairs
    order = np.lexsort((pairs.passages, pairs.queries))
    # refused ones count as 0, drawn or not
    given = np.array([0 if grade is None else grade for grade in grades], dtype=np.int64)
    qrels = Qrels(pairs.queries[order], pairs.passages[order], given[order])
    judged = request.opened.values(qrels, request.measure)
    answered = np.array([grade is not None for grade in grades])
    labels, names = request.labels, list(request.opened.results)
    decisions = [_decision(request, judged, a, b) for a, b in itertools.combinations(range(len(names)), 2)]
    agreed, bias = None, {}
    if labels:
        human, collection = labels.qrels, request.opened.collection
        keys, known = (pair_keys(each.queries, each.passages, collection) for each in (pairs, human))
        _, asked, graded = np.intersect1d(keys, known, assume_unique=True, return_indices=True)
        asked, graded = asked[answered[asked]], graded[answered[asked]]
        if len(asked):
            agreed = agreement(human.grades[graded], given[asked])
        favour = judged - labels.values
        favour = favour - favour.mean(axis=1, keepdims=True)
        weights = labels.weights[labels.weights > 0]
        nothing, drawn = np.zeros(len(weights)), _drawn(labels)
        bias = {
            name: estimate_with_judge(of_one[labels.queries], nothing, drawn, weights, -inf, inf)
            for name, of_one in zip(names, favour.T, strict=True)
        }
    related = {}
    if family := family_of(request.settings.model):
        for name, result in request.opened.results.items():
            if any(family_of(model.name) == family for model in result.record.models):
                related[name] = family
    return JudgeReport(request, int((~answered).sum()), decisions, agreed, bias, related)


def _first_decidable(config: Config) -> Measure:
    for name in config.evaluate.measures:
        with suppress(InputError):
            return decidable(name)
    return decidable(config.evaluate.measures[0])


def _decision(request: JudgeRequest, judged: Float64, a: int, b: int) -> PairDecision:
    apart, labels, names = judged[:, a] - judged[:, b], request.labels, list(request.opened.results)
    if labels is None:
        return PairDecision(names[a], names[b], float(apart.mean()))
    human = labels.values[:, a] - labels.values[:, b]
    ends = difference_ranges(
        request.opened, request.measure, a, b, max(HIGHEST_GRADE, *request.settings.grades)
    )
    unknown, drawn = labels.weights > 0, _drawn(labels)
    base, share = float(human[~unknown].sum()) / len(human), float(unknown.mean())  # of those that are known
    low, high, judged_of, weights = (column[unknown] for column in (*ends, apart, labels.weights))
    of_drawn = human[labels.queries]
    bets = BetsInOrder(of_drawn, low, high, judged_of, drawn, weights)
    estimated = estimate_with_judge(of_drawn, judged_of, drawn, weights, low, high)
    by_both, alone = (
        interval.moved(base, share) for interval in (estimated.by_both, estimated.without_judge)
    )
    estimated = replace(estimated, by_both=by_both, without_judge=alone)
    return PairDecision(
        names[a], names[b], float(apart.mean()), estimated, bets.decided(1 - CONFIDENCE, -base / share)
    )


def _drawn(labels: Labels) -> Int64:
    """int64 [n]: the place of each labelled query among those that could be drawn."""
    return np.cumsum(labels.weights > 0)[labels.queries] - 1


def _agreement_table(found: Agreement) -> Table:
    totals = found.confusion.sum(axis=1)
    same = [n / total if total else None for n, total in zip(np.diag(found.confusion), totals, strict=True)]
    columns: list[FilledColumn] = [(Column("people's grade"), [f"{grade:g}" for grade in found.grades])]
    for place, grade in enumerate(found.grades):
        counts = [f"{n:,}" for n in found.confusion[:, place].tolist()]
        columns.append((right(f"judge: {grade:g}"), counts))
    columns.append((right("same", form=".2f"), same))
    kappa = "" if found.kappa is None else f", kappa {found.kappa:.2f}"
    graded = counted(int(totals.sum()), "pair")
    return table_of(f"agreement of judge and people{kappa}: {graded} that both graded", columns)


def agreement(of_people: Array, of_judge: Int64) -> Agreement:
    """The agreement on the grades of some pairs, at least one; kappa is scikit-learn's."""
    from sklearn.metrics import cohen_kappa_score

    grades, places = np.unique(np.concatenate([of_people, of_judge]), return_inverse=True)
    both = np.split(places, 2)
    kappa = float(cohen_kappa_score(*both)) if len(grades) > 1 else None
    confusion = np.zeros((len(grades), len(grades)), np.int64)
    np.add.at(confusion, tuple(both), 1)
    return Agreement(kappa, grades.tolist(), confusion)
