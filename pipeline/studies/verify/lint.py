"""Contradictions: values that one evaluation cannot have given, whatever the model, by `RULES`.

The rules follow from the definitions of measures. Values are those of result files, ours or MTEB's, or scores
that were published together.

lint_files([Path("results")]).tables()
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import nan
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Facts, JsonObject
from pipeline.core.result_files import CHECKSUMS, MANIFEST, METRICS, SUITE
from pipeline.core.table import Column, FilledColumn, Table, Tabular, table_of
from pipeline.metrics.definitions import MEASURES
from pipeline.metrics.names import parse_measure
from pipeline.results.exchange import META
from pipeline.studies.verify.published_files import MtebFile, known_measure

OUR_DIGITS, MTEB_DIGITS = 9, 5
TIES = "tied documents: before mteb 2.18.19 MRR and capped recall left them in order of insertion"
TIED = ("mrr", "recall(cap=true)")  # measures that tools computed of another order than the rest

Point = tuple[str, int]
"""A measure without its cutoff, and the cutoff; 0 for other numbers of an evaluation."""
Scores = Mapping[Point, tuple[float, float]]
"""The values of one evaluation, and by how much rounding may have changed each."""


class Rule(NamedTuple):
    """A measure that is not above another, or is equal to it, at every cutoff or at 1 alone; and why."""

    first: str
    relation: Literal["=", "<="]
    second: str
    cutoff: Literal["1", "k"]
    reason: str

    def __str__(self) -> str:
        return f"{self.first}@{self.cutoff} {self.relation} {self.second}@{self.cutoff}"


ONE_HIT, NO_HIT = "both ask whether the first hit is relevant", "each is 0 for a query without a relevant hit"
RULES = (
    Rule("mrr", "=", "precision", "1", ONE_HIT),
    Rule("success", "=", "precision", "1", ONE_HIT),
    Rule("map", "=", "recall", "1", "both are 1 / R if the first hit is relevant"),
    Rule("ndcg", "<=", "precision", "1", "only a relevant hit gains"),
    Rule("map", "<=", "recall", "k", "each precision that is summed is at most 1"),
    Rule("recall", "<=", "recall(cap=true)", "k", "a cap divides by less"),
    *(Rule(name, "<=", "success", "k", NO_HIT) for name in ("recall", "mrr", "precision", "ndcg")),
)


@dataclass(frozen=True)
class Contradiction:
    """Values that cannot be, both right; `cause` is what may explain them, as far as the file tells."""

    identity: str
    values: str
    reason: str
    cause: str


def above(scores: Scores, first: Point, second: Point, weights: tuple[int, int] = (1, 1)) -> bool:
    """Whether weights[0] times the first value is above weights[1] times the second, both being there."""
    (one, one_error), (other, other_error) = scores.get(first, (nan, nan)), scores.get(second, (nan, nan))
    return one * weights[0] - other * weights[1] > 1.001 * (one_error * weights[0] + other_error * weights[1])


def _broken(scores: Scores) -> Iterator[tuple[str, str, list[Point]]]:
    """The rules that values break: each with its reason, and the points of those values."""
    for rule in RULES:
        for k in [k for name, k in scores if name == rule.first and (rule.cutoff == "k" or k == 1)]:
            first, second = (rule.first, k), (rule.second, k)
            if above(scores, first, second):
                yield str(rule), rule.reason, [first, second]
            elif rule.relation == "=" and above(scores, second, first):
                yield str(rule), rule.reason, [second, first]
    rising = {name: "more hits only add" for name, known in MEASURES.items() if known.rises and known.bounded}
    for name, reason in (rising | {"precision": "it counts the relevant hits"}).items():
        what = f"{name} does not" if name in rising else "k P@k does not"
        for low, high in itertools.pairwise(sorted(k for other, k in scores if other == name)):
            if above(scores, (name, low), (name, high), (1, 1) if name in rising else (low, high)):
                yield f"{what} fall with k", reason, [(name, low), (name, high)]
    for at, (value, error) in scores.items():
        if at[1] and not -error <= value <= 1 + error:
            yield "values are in [0, 1]", "those of all queries are", [at]
    main, _ = scores.get(("main_score", 0), (nan, nan))
    equal = [at for at, (value, _) in scores.items() if abs(value - main) <= 1.001e-5]  # perhaps rounded
    if len(equal) == 1:
        yield "main score is one of the measures", "it is a copy of one", equal


def contradictions(scores: Scores, cause: str = "") -> Iterator[Contradiction]:
    """What breaks rules; `cause` may explain values of `TIED` measures."""
    for identity, reason, points in _broken(scores):
        zeros = [f"{name}@{k} is 0: not computed" for name, k in points if k and scores[name, k][0] == 0]
        tied = cause if len({*points}) > 1 and any(name in TIED for name, _ in points) else ""
        values = ", ".join(f"{name}{f'@{k}' if k else ''} {scores[name, k][0]:.5f}" for name, k in points)
        yield Contradiction(identity, values, reason, zeros[0] if zeros else tied)


def point_of(name: str) -> Point:
    """The measure without its cutoff, and the cutoff; 0 for unbounded measures and other names."""
    try:
        measure = parse_measure(name)
    except InputError:
        return name, 0
    if measure.cutoff is None or not measure.definition.bounded:
        return name, 0
    return str(replace(measure, cutoff=None)), measure.cutoff


class Place(NamedTuple):
    """Where scores are; empty where the file does not say."""

    file: str
    model: str = ""
    task: str = ""
    split: str = ""
    subset: str = ""


@dataclass(frozen=True, repr=False)
class Lint(Tabular):
    """What was found.

    Attributes:
        files: How many files had measures.
        scores: How many subsets of splits they hold.
        skipped: How many JSON files hold no measures of retrieval.
        found: The contradictions, each with its place.
    """

    files: int
    scores: int
    skipped: int
    found: list[tuple[Place, Contradiction]]

    def json(self) -> JsonObject:
        """The document that `verify --lint --json` prints."""
        rows = [place._asdict() | asdict(contradiction) for place, contradiction in self.found]
        counts = {"files": self.files, "scores": self.scores, "skipped": self.skipped}
        return {**counts, "counts": self._counts(), "contradictions": rows}

    def _counts(self) -> list[Facts]:
        """How often each identity is broken, by causes, the most frequent first; with an example."""
        groups: defaultdict[tuple[str, str], list[tuple[Place, str]]] = defaultdict(list)
        for place, found in self.found:
            groups[found.identity, found.cause].append((place, found.values))
        return [
            {
                "identity": identity,
                "cause": cause,
                "scores": len({place for place, _ in rows}),
                "files": len({place.file for place, _ in rows}),
                "models": len({place.model for place, _ in rows}),
                "example": f"{rows[0][0].file}: {rows[0][1]}",
            }
            for (identity, cause), rows in sorted(groups.items(), key=lambda group: -len(group[1]))
        ]

    def tables(self) -> list[Table]:
        """Contradictions by identity and cause."""
        checked = f"{counted(self.files, 'file')}, {counted(self.scores, 'set')} of scores"
        notes = [f"{self.skipped:,} JSON files without measures of retrieval."] if self.skipped else []
        if not self.found:
            title = f"No contradiction in {checked}: they agree with the definitions of their measures."
            return [Table(title, [], [], notes)]
        counts = self._counts()
        numbers = ("scores", "files", "models")
        columns: list[FilledColumn] = [
            (
                Column(name, "right", "never", form=",") if name in numbers else Column(name),
                [row[name] for row in counts],
            )
            for name in counts[0]
        ]
        return [table_of(f"{checked}: {counted(len(self.found), 'contradiction')}", columns, notes)]


def lint_files(paths: Sequence[Path]) -> Lint:
    """Check files, and all files of folders.

    Raises:
        InputError: A path does not exist, or a file that is named has no measures.
    """
    if missing := [path for path in paths if not path.exists()]:
        raise InputError(f"{missing[0]}: no such file", allowed="files and folders", fix="check the path")
    files = [each for path in paths for each in ([path] if path.is_file() else sorted(path.rglob("*.json")))]
    evaluations: list[tuple[Place, Scores, str]] = []
    skipped = 0
    for path in dict.fromkeys(files):
        of_file = list(_evaluations(path))
        if path in paths and not of_file:
            raise InputError(
                f"{path}: no measures of retrieval in it",
                allowed="a result folder, its metrics.json, or a result file of MTEB",
                fix="check the path",
            )
        skipped += not of_file and path.name not in (MANIFEST, META, SUITE, CHECKSUMS)
        evaluations += of_file
    found = [(place, each) for place, scores, cause in evaluations for each in contradictions(scores, cause)]
    n_files = len({place.file for place, *_ in evaluations})
    return Lint(n_files, len(evaluations), skipped, found)


def _evaluations(path: Path) -> Iterator[tuple[Place, Scores, str]]:
    """The sets of scores of a file, and what may explain that they contradict themselves."""
    if path.name in (MANIFEST, META, CHECKSUMS):
        return
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    if path.name in (METRICS, SUITE) and isinstance(content, dict):
        scores = _scores(content.get("metrics") or {}, OUR_DIGITS)
        if any(k for _, k in scores):
            yield Place(str(path), str(content.get("name"))), scores, ""
        return
    file = MtebFile(path, content if isinstance(content, dict) else {})
    version = tuple(map(int, re.findall(r"\d+", file.version)[:3]))
    for split, subset, entry in file.entries():
        scores = _scores(entry, MTEB_DIGITS)
        if any(k for _, k in scores):
            place = Place(str(path), file.folder, file.task, split, subset)
            yield place, scores, TIES if version < (2, 18, 19) else ""


def _scores(entry: Facts, most_digits: int) -> Scores:
    """The numbers of an object. Some files hold percents of two digits; MRR is not rounded."""
    points = {}
    for name, value in entry.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        at = point_of((known_measure(name) or name) if "_at_" in name else name)
        if number or at[1]:
            points[at] = value if number else nan
    texts = [repr(value).partition(".")[2] for (name, k), value in points.items() if k and name != "mrr"]
    digits = min(max([2, *map(len, texts)]) if texts else most_digits, most_digits)
    return {at: (value, 0.5 * 10.0**-digits) for at, value in points.items()}
