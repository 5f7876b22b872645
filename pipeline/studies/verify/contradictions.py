"""Contradictions: values in result files, ours or MTEB's, that no single evaluation can have given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from typing import NamedTuple

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Facts, JsonObject
from pipeline.core.table import Column, Table, Tabular, table_of
from pipeline.metrics.definitions import MEASURES
from pipeline.storage.whole_files import RESULT_FILES, read_json_object
from pipeline.studies.verify.published_files import MTEB_PLACES, known_measure, mteb_entries

Point = tuple[str, int]  # a measure without its cutoff, and the cutoff; 0 for other numbers of an evaluation
Scores = Mapping[Point, tuple[float, float]]
"""The values of one evaluation, and by how much rounding may have changed each."""

NO_HIT = "each is 0 for a query without a relevant hit"
RULES = (
    *((name, "=", "precision", "1", "both ask if the first hit is relevant") for name in ("mrr", "success")),
    ("map", "=", "recall", "1", "both are 1 / R if the first hit is relevant"),
    ("ndcg", "<=", "precision", "1", "only a relevant hit gains"),
    ("map", "<=", "recall", "k", "each precision that is summed is at most 1"),
    ("recall", "<=", "recall(cap=true)", "k", "a cap divides by less"),
    *((name, "<=", "success", "k", NO_HIT) for name in ("recall", "mrr", "precision", "ndcg")),
)
"""Two measures at cutoff 1 or at every cutoff k, how they are related, and why: by their definitions."""
TIED = ("mrr", "recall(cap=true)")
TIES = "tied documents: before mteb 2.18.19 MRR and capped recall left them in order of insertion"


class Contradiction(NamedTuple):
    """Values that cannot all be right; what may explain them and where they are, as far as the file says."""

    identity: str
    values: str
    reason: str
    cause: str
    file: str = ""
    split: str = ""
    subset: str = ""


@dataclass(frozen=True, repr=False)
class Lint(Tabular):
    """How many files with measures there are, and what contradicts itself in them."""

    files: int
    contradictions: list[Contradiction]

    def json(self) -> JsonObject:
        """The document that `verify --lint --json` prints."""
        return {"files": self.files, "contradictions": [each._asdict() for each in self.contradictions]}

    def tables(self) -> list[Table]:
        """A row for each contradiction."""
        title = f"{counted(len(self.contradictions), 'contradiction')} in {counted(self.files, 'file')}"
        cells = zip(*self.contradictions, strict=True)
        return [table_of(title, zip(map(Column, Contradiction._fields), cells, strict=False))]


def lint_files(paths: Sequence[Path]) -> Lint:
    """Check files, and all files of folders.

    Raises:
        InputError: There are no measures in a file or a folder that is named, or a file is cut off.
    """
    evaluations: dict[Path, list[tuple[Scores, str, tuple[str, ...]]]] = {}
    for path in paths:
        files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        evaluations |= {file: rows for file in files if (rows := list(_evaluations(file)))}
        if not evaluations.keys() & {*files}:
            state = "no measures of retrieval in it" if path.exists() else "no such file"
            raise InputError(f"{path}: {state}", allowed="folders and files of results, ours or MTEB's")
    broken = [each for rows in evaluations.values() for row in rows for each in contradictions(*row)]
    return Lint(len(evaluations), broken)


def _evaluations(path: Path) -> Iterator[tuple[Scores, str, tuple[str, ...]]]:
    """The sets of scores of a file, what may explain that one contradicts itself, and where it is."""
    content, ours = read_json_object(path), path.name in RESULT_FILES
    if content is None and path.is_file() and path.read_bytes().lstrip().startswith(b"{"):
        raise InputError(f"{path}: not JSON", allowed="result files, ours or MTEB's", fix="write it again")
    content = content or {}
    version = tuple(map(int, re.findall(r"\d+", str(content.get("mteb_version") or ""))[:3]))
    entries = mteb_entries({"scores": {"": [content.get("metrics")]}} if ours else content)
    for split, subset, entry in entries:
        scores = _scores(entry)
        if any(k for _, k in scores):
            yield scores, "" if ours or version >= (2, 18, 19) else TIES, (str(path), split, subset)


def _scores(entry: Facts) -> Scores:
    """The numbers of an object. Some files hold percents of two digits; MRR is not rounded."""
    points = {point_of(known_measure(name) or name): value for name, value in entry.items()}
    values = {at: value if type(value) in (int, float) else nan for at, value in points.items()}
    rounded = [repr(value).partition(".")[2] for (name, k), value in values.items() if k and name != "mrr"]
    places = min(max([2, *map(len, rounded)]) if rounded else MTEB_PLACES, MTEB_PLACES)
    return {at: (value, 0.5 * 10.0**-places) for at, value in values.items()}


def point_of(name: str) -> Point:
    """The measure without its cutoff, and the cutoff; 0 for unbounded measures and other names."""
    measure, _, cutoff = name.partition("@")
    known = MEASURES.get(measure.partition("(")[0])
    return (measure, int(cutoff)) if cutoff.isdecimal() and known and known.highest < inf else (name, 0)


def contradictions(scores: Scores, cause: str = "", place: Sequence[str] = ()) -> Iterator[Contradiction]:
    """What breaks rules; `cause` may explain values of `TIED` measures."""
    for identity, reason, *points in _broken(scores):
        zeros = [f"{name}@{k} is 0: not computed" for name, k in points if k and scores[name, k][0] == 0]
        tied = cause if len({*points}) > 1 and any(name in TIED for name, _ in points) else ""
        values = ", ".join(f"{name}{f'@{k}' if k else ''} {scores[name, k][0]:.5f}" for name, k in points)
        yield Contradiction(identity, values, reason, zeros[0] if zeros else tied, *place)


def _broken(scores: Scores) -> Iterator[tuple[str, str, *tuple[Point, ...]]]:
    """The rules that values break by more than rounding can: each with its reason, and those values."""
    for identity, reason, first, second in _bounds(scores):
        (one, one_error), (other, other_error) = (scores.get(at, (nan, nan)) for at in (first, second))
        if one - other > 1.001 * (one_error + other_error):
            yield identity, reason, first, second
    for at, (value, error) in scores.items():
        if at[1] and not -error <= value <= 1 + error:
            yield "values are in [0, 1]", "those of all queries are", at
    main, _ = scores.get(("main_score", 0), (nan, nan))
    if [at for at, (value, _) in scores.items() if abs(value - main) <= 1.001e-5] == [("main_score", 0)]:
        yield "main score is one of the measures", "it is a copy of one, perhaps rounded", ("main_score", 0)


def _bounds(scores: Scores) -> Iterator[tuple[str, str, Point, Point]]:
    """A rule's name, its reason, and two values of which the first must not be above the second."""
    for first, relation, second, cutoff, reason in RULES:
        for k in [k for name, k in scores if name == first and cutoff in ("k", str(k))]:
            points = (first, k), (second, k)
            for low, high in (points, points[::-1]) if relation == "=" else (points,):
                yield f"{first}@{cutoff} {relation} {second}@{cutoff}", reason, low, high
    for rising in (name for name, known in MEASURES.items() if known.rises and known.highest < inf):
        for low, high in pairwise(sorted(at for at in scores if at[0] == rising)):
            yield f"{rising} does not fall with k", "more hits only add", low, high
