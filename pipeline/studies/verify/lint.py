"""Contradictions in stored results: values of measures that one evaluation cannot have given.

lint([Path("results")]).tables()

Files are ours or MTEB's. What must hold follows from the definitions of the measures, whatever the model: a
reciprocal rank at 1 is the precision at 1, recall never falls as k grows, and so on (`EQUAL_AT_1`, `AT_MOST`,
`RISING`). Where the files themselves tell what may explain a contradiction, it is named: a measure that was
not computed, or a fault that a later version of MTEB mended.
"""

from __future__ import annotations

import functools
import glob
import itertools
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Facts, JsonObject
from pipeline.core.result_files import MANIFEST, METRICS, SUITE
from pipeline.core.table import Column, FilledColumn, Table, Tabular, table_of
from pipeline.metrics.names import parse_measure
from pipeline.results.exchange import META
from pipeline.results.result import read_result
from pipeline.studies.verify.published_files import MtebFile, known_measure

EQUAL_AT_1 = (("mrr", "precision"), ("success", "precision"), ("map", "recall"))
AT_MOST = (
    ("map", "recall"), ("recall", "recall(cap=true)"), ("recall", "success"), ("mrr", "success"),
    ("precision", "success"), ("ndcg", "success"),
)  # fmt: skip
"""Measures of which the first is at most the second at the same cutoff: a term of each sum is at most 1."""
RISING = ("recall", "success", "mrr", "map")
UNBOUNDED = ("cg", "dcg")
MTEB_DIGITS = 5  # that MTEB keeps of all measures but MRR
OUR_ERROR = 0.5e-9
TIED = ("mrr", "recall(cap=true)")
TIES_MENDED = (2, 18, 19)
TIES = "tied documents: before mteb 2.18.19 MRR and capped recall left them in order of insertion"
"""Cause of differences between these and trec_eval's measures, which order ties by id (mteb's PR 5136)."""
PARTS = re.compile(r"CQADupstack(?!Retrieval)\w+Retrieval")
WHOLE, N_PARTS = "CQADupstackRetrieval", 12
"""A task of MTEB whose score is the mean of those of its parts, which have files of their own."""
BINARY_SHARE, BINARY_FILES = 0.9, 5
"""Grades count as binary where so many files, this share of them, have nDCG@1 = P@1 in the same subset."""


@dataclass(frozen=True)
class Scores:
    """The measures of one subset of one split.

    Attributes:
        file: Where they are.
        model, task, split, subset, version: What the file says; "" where it does not. `version` is MTEB's.
        values: By name of a measure and cutoff.
        main: The main score; None without one.
        others: All numbers beside it.
        error: By how much rounding may have changed a value.
    """

    file: str
    model: str
    task: str
    split: str
    subset: str
    version: str
    values: dict[str, dict[int, float]]
    error: float
    main: float | None = None
    others: Sequence[float] = ()

    @property
    def where(self) -> tuple[str, str, str]:
        """What grades are the same for."""
        return self.task, self.split, self.subset

    def at(self, measure: str, k: int) -> float | None:
        """A value; None where there is none."""
        return self.values.get(measure, {}).get(k)


@dataclass(frozen=True)
class Contradiction:
    """Values that cannot be, both right.

    Attributes:
        file, model, task, split, subset, version: As of `Scores`.
        identity: What must hold.
        values: The values, as text.
        cause: What may explain it; "" where the files do not tell.
    """

    file: str
    model: str
    task: str
    split: str
    subset: str
    version: str
    identity: str
    values: str
    cause: str = ""


@dataclass(frozen=True, repr=False)
class Lint(Tabular):
    """What was found.

    Attributes:
        files: How many files had measures.
        scores: How many subsets of splits they hold.
        skipped: How many JSON files hold no measures of retrieval.
        found: The contradictions.
    """

    files: int
    scores: int
    skipped: int
    found: list[Contradiction]

    def json(self) -> JsonObject:
        """The document that `verify --lint --json` prints."""
        counts = [
            {"identity": identity, "cause": cause or None, **self._counts(group)}
            for (identity, cause), group in _grouped(self.found, "identity", "cause")
        ]
        return {
            "files": self.files,
            "scores": self.scores,
            "skipped": self.skipped,
            "counts": counts,
            "contradictions": [asdict(each) for each in self.found],
        }

    def tables(self) -> list[Table]:
        """Contradictions by identity and cause, by task, and those that nothing explains."""
        checked = f"{counted(self.files, 'file')}, {counted(self.scores, 'set')} of scores"
        notes = [f"{self.skipped:,} JSON files without measures of retrieval."] if self.skipped else []
        if not self.found:
            title = f"No contradiction in {checked}: they agree with the definitions of their measures."
            return [Table(title, [], [], notes)]
        title = f"{checked}: {counted(len(self.found), 'contradiction')}"
        by_identity = self._table(title, ("identity", "cause"), self.found, notes)
        open_ones = [each for each in self.found if not each.cause]
        columns: list[FilledColumn] = [
            (Column(name), [getattr(each, name) for each in open_ones[:ROWS]])
            for name in ("model", "task", "split", "subset", "identity", "values")
        ]
        columns.insert(
            0, (Column("file"), [each.file if not each.model else "" for each in open_ones[:ROWS]])
        )
        more = [f"{len(open_ones) - ROWS:,} more: --json lists all."] if len(open_ones) > ROWS else []
        tables = [by_identity]
        if any(each.task for each in self.found):
            tables.append(self._table("tasks with most contradictions", ("task",), self.found))
        if open_ones:
            tables.append(table_of("not explained", columns, more))
        return tables

    def _table(
        self, title: str, keys: tuple[str, ...], found: Sequence[Contradiction], notes: Sequence[str] = ()
    ) -> Table:
        groups = _grouped(found, *keys)[:ROWS]
        counts = [self._counts(group) for _, group in groups]
        columns: list[FilledColumn] = [
            (Column(key), [values[number] for values, _ in groups]) for number, key in enumerate(keys)
        ]
        columns += [
            (Column(name, "right", "never", form=","), [each[name] for each in counts])
            for name in ("scores", "files", "models")
        ]
        return table_of(title, columns, notes)

    @staticmethod
    def _counts(group: Sequence[Contradiction]) -> dict[str, int]:
        return {
            "scores": len({(each.file, each.split, each.subset) for each in group}),
            "files": len({each.file for each in group}),
            "models": len({each.model for each in group}),
        }


ROWS = 20  # of a table


def _grouped(found: Iterable[Contradiction], *keys: str) -> list[tuple[tuple[str, ...], list[Contradiction]]]:
    """The contradictions by the values of some attributes, the largest group first."""
    groups: defaultdict[tuple[str, ...], list[Contradiction]] = defaultdict(list)
    for each in found:
        groups[tuple(getattr(each, key) for key in keys)].append(each)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def lint_files(paths: Sequence[Path]) -> Lint:
    """Check files, all files of folders, and what patterns match.

    Raises:
        InputError: A path does not exist, or a file that is named has no measures.
    """
    named = [Path(match) for path in paths for match in _matches(path)]
    files = [each for path in named for each in ([path] if path.is_file() else sorted(path.rglob("*.json")))]
    linter = _Linter()
    for path in dict.fromkeys(files):
        if not linter.read(path) and path in named:
            raise InputError(
                f"{path}: no measures of retrieval in it",
                allowed="a result folder, its metrics.json, or a result file of MTEB",
                fix="check the path",
            )
    return linter.finished()


def _matches(path: Path) -> list[str]:
    """A path, or what a pattern matches."""
    found = [str(path)] if path.exists() else sorted(glob.glob(str(path), recursive=True))
    if not found:
        raise InputError(f"{path}: no such file", allowed="files, folders and patterns", fix="check the path")
    return found


@dataclass
class _Linter:
    """Counts and contradictions of the files read so far; some need several files.

    Attributes:
        graded: By task, split and subset, how many files have nDCG@1 = P@1, and contradictions if grades are
            binary.
        wholes, parts: Main scores by folder and split: of `WHOLE`, and of each of its parts.
    """

    files: int = 0
    scores: int = 0
    skipped: int = 0
    found: list[Contradiction] = field(default_factory=list)
    equal: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    graded: defaultdict[tuple[str, str, str], list[Contradiction]] = field(
        default_factory=lambda: defaultdict(list)
    )
    wholes: dict[tuple[Path, str], Scores] = field(default_factory=dict)
    parts: defaultdict[tuple[Path, str], list[Scores]] = field(default_factory=lambda: defaultdict(list))

    def read(self, path: Path) -> bool:
        """Check one file; returns whether it has measures."""
        try:
            found = list(_scores_of(path))
        except InputError as error:  # a result folder that contradicts itself
            self.found.append(
                Contradiction(str(path), "", "", "", "", "", "files are of one run", str(error))
            )
            found = []
        else:
            if not found:
                self.skipped += path.name not in (MANIFEST, META)
                return False
        self.files += 1
        self.scores += len(found)
        for scores in found:
            self.found += _contradictions(scores)
            self._compare_files(path, scores)
        return True

    def _compare_files(self, path: Path, scores: Scores) -> None:
        """Remember what can only be said once all files are read."""
        ndcg, precision = scores.at("ndcg", 1), scores.at("precision", 1)
        if scores.task and ndcg is not None and precision is not None:
            if abs(ndcg - precision) <= 2 * scores.error:
                self.equal[scores.where] += 1
            elif ndcg < precision:
                values = _said(("ndcg", 1, ndcg), ("precision", 1, precision))
                self.graded[scores.where].append(_found(scores, "nDCG@1 = P@1 (binary grades)", values))
        if scores.main is not None and scores.task == WHOLE:
            self.wholes[path.parent, scores.split] = scores
        elif scores.main is not None and PARTS.fullmatch(scores.task):
            self.parts[path.parent, scores.split].append(scores)

    def finished(self) -> Lint:
        """All contradictions."""
        for where, contradictions in self.graded.items():
            equal = self.equal[where]
            if equal >= BINARY_FILES and equal >= BINARY_SHARE * (equal + len(contradictions)):
                self.found += contradictions
        for place, whole in self.wholes.items():
            parts = [each.main for each in self.parts[place] if each.main is not None]
            if len(parts) != N_PARTS or whole.main is None:
                continue
            mean = sum(parts) / N_PARTS
            if abs(mean - whole.main) > 2 * whole.error:
                values = f"main score {whole.main:.5f}, mean of {N_PARTS} parts {mean:.5f}"
                versions = {whole.version, *(each.version for each in self.parts[place])}
                cause = "computed by different versions of mteb" if len(versions) > 1 else ""
                self.found.append(_found(whole, "main score = mean of its parts", values, cause))
        return Lint(self.files, self.scores, self.skipped, self.found)


def _contradictions(scores: Scores) -> Iterator[Contradiction]:
    """What one set of scores contradicts by itself."""
    margin = 2 * scores.error * 1.001
    for measure, by_k in scores.values.items():
        for k, value in by_k.items():
            if not -scores.error <= value <= 1 + scores.error:  # also where it is no number
                yield _found(scores, "values are in [0, 1]", _said((measure, k, value)))
        if measure in (*RISING, "precision"):
            ascending = sorted(by_k)
            for low, high in itertools.pairwise(ascending):
                weights = (low, high) if measure == "precision" else (1, 1)
                fall = by_k[low] * weights[0] - by_k[high] * weights[1]
                if fall > scores.error * sum(weights) * 1.001:
                    what = "relevant documents in the top k (k P@k)" if measure == "precision" else measure
                    values = _said((measure, low, by_k[low]), (measure, high, by_k[high]))
                    cause = f"0 at {high}: not computed there" if by_k[high] == 0 else ""
                    yield _found(scores, f"{what} does not fall with k", values, cause)
    for first, second in EQUAL_AT_1:
        one, other = scores.at(first, 1), scores.at(second, 1)
        if one is not None and other is not None and abs(one - other) > margin:
            values = _said((first, 1, one), (second, 1, other))
            yield _found(scores, f"{first}@1 = {second}@1", values, _cause(scores, first, second))
    pairs = [(first, second, k) for first, second in AT_MOST for k in scores.values.get(first, ()) if k > 1]
    for first, second, k in [("ndcg", "precision", 1), *pairs]:
        one, other = scores.at(first, k), scores.at(second, k)
        if one is not None and other is not None and one - other > margin:
            values = _said((first, k, one), (second, k, other))
            where = "@1" if k == 1 else "@k"
            yield _found(scores, f"{first}{where} <= {second}{where}", values, _cause(scores, first, second))
    copied = 10.0**-MTEB_DIGITS * 1.001  # a copy, or rounded at most, whatever the digits of other values
    if scores.main is not None and not any(abs(scores.main - each) <= copied for each in scores.others):
        yield _found(scores, "main score is one of the measures", f"main score {scores.main:.5f}")


def _cause(scores: Scores, *measures: str) -> str:
    """What explains that two measures contradict each other, as far as a file tells."""
    for measure in measures:
        if not any(scores.values[measure].values()):
            return f"{measure} is 0 at every cutoff: not computed"
    version = tuple(map(int, re.findall(r"\d+", scores.version)[:3]))
    mended = version >= TIES_MENDED or scores.error == OUR_ERROR
    return TIES if any(measure in TIED for measure in measures) and not mended else ""


def _found(scores: Scores, identity: str, values: str, cause: str = "") -> Contradiction:
    place = (scores.file, scores.model, scores.task, scores.split, scores.subset, scores.version)
    return Contradiction(*place, identity, values, cause)


def _said(*values: tuple[str, int, float]) -> str:
    return ", ".join(f"{measure}@{k} {value:.5f}" for measure, k, value in values)


def _scores_of(path: Path) -> Iterator[Scores]:
    """The sets of scores of a file; none in other JSON files."""
    if path.name in (METRICS, SUITE):
        return _our_scores(path)
    if path.name in (MANIFEST, META):
        return iter(())
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    return _mteb_scores(path, content) if isinstance(content, dict) else iter(())


def _our_scores(path: Path) -> Iterator[Scores]:
    """Those of a result folder, whose files are compared with each other as they are read."""
    result = read_result(path.parent)
    if (path.name == SUITE) == bool(result.suite):
        yield Scores(str(path), result.name, "", "", "", "", _by_measure(result.metrics), error=OUR_ERROR)


def _mteb_scores(path: Path, content: Facts) -> Iterator[Scores]:
    """Those of a task of MTEB."""
    file = MtebFile(path, content)
    for split, subset, entry in file.entries():
        if values := _by_measure(entry):
            main = entry.get("main_score")
            others = [
                value
                for name, value in entry.items()
                if name != "main_score" and isinstance(value, int | float)
            ]
            place = file.folder, file.task, split, subset, file.version
            finite = main if isinstance(main, int | float) and math.isfinite(main) else None
            yield Scores(str(path), *place, values, _rounding(values), finite, others)


def _rounding(values: dict[str, dict[int, float]]) -> float:
    """Half a unit of the last digit of measures, MRR aside: some files hold percents of two digits."""
    texts = (repr(value) for name in ("ndcg", "recall", "map") for value in values.get(name, {}).values())
    digits = max((len(text.partition(".")[2]) for text in texts), default=MTEB_DIGITS)
    return float(0.5 * 10.0 ** -min(max(digits, 2), MTEB_DIGITS))


def _by_measure(entry: Facts) -> dict[str, dict[int, float]]:
    """The measures among the keys of an object, by name and cutoff."""
    values: dict[str, dict[int, float]] = {}
    for name, value in entry.items():
        if measure := _measure(name):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            values.setdefault(measure[0], {})[measure[1]] = value if number else math.nan
    return values


@functools.cache
def _measure(name: str) -> tuple[str, int] | None:
    """The name and cutoff of a measure of retrieval, here or in MTEB; None for other names."""
    try:
        measure = parse_measure((known_measure(name) or "none") if "_at_" in name else name)
    except InputError:
        return None
    if measure.cutoff is None or measure.name in UNBOUNDED:
        return None
    return str(replace(measure, cutoff=None)), measure.cutoff
