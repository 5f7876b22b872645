"""Comparison of a result with one that was made by running its manifest again.

found = compare_with_original(read_result("results/A"), read_result("again/A"))
found.unchanged, found.rbo, found.differences
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.display import counted, p, rounded
from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64
from pipeline.core.table import Cell, Column, Displayed, FilledColumn, Table, table_of
from pipeline.metrics import reproduction as measured
from pipeline.metrics.paired import with_ties
from pipeline.metrics.statistics import t_test
from pipeline.results.differences import Difference, differences
from pipeline.results.folder import RUN, SavedResult


@dataclass(frozen=True)
class MeasureAgain:
    """One measure of both results.

    Attributes:
        measure: Its name.
        original, reproduced: The means over the queries of both.
        rmse: Root mean square error of the values per query.
        p_ttest: Of the two-sided paired t-test.
        effect_ratio: The reproduced difference from the baseline over the original one; None without a
            baseline, or where the original has no difference.
    """

    measure: str
    original: float
    reproduced: float
    rmse: float
    p_ttest: float
    effect_ratio: float | None = None


@dataclass(frozen=True, repr=False)
class Reproduction(Displayed):
    """A result and its reproduction.

    Attributes:
        name: The result's name.
        queries: How many both have.
        unpaired: How many only one of them has.
        other_rankings: Queries whose rankings are not equal.
        kendall_tau_union, rbo: Means over the queries; see `pipeline.metrics.reproduction`.
        measures: Those that both have.
        differences: What the manifests show to differ.
    """

    name: str
    queries: int
    unpaired: int
    other_rankings: int
    kendall_tau_union: float
    rbo: float
    measures: list[MeasureAgain]
    differences: list[Difference]

    @property
    def unchanged(self) -> bool:
        """Whether all rankings, and the values of every query, are the same."""
        return not self.unpaired and not self.other_rankings and not any(each.rmse for each in self.measures)

    def within(self, tolerance: float | None) -> bool:
        """Whether nothing changed, or no RMSE is above a tolerance."""
        near = tolerance is not None and all(each.rmse <= tolerance for each in self.measures)
        return self.unchanged or (near and not self.unpaired)

    def json(self) -> dict[str, Any]:
        """The document that `reproduce --json` prints."""
        return {"name": self.name, "unchanged": self.unchanged, **asdict(self)}

    def tables(self) -> list[Table]:
        """The measures, and what differs, if anything does."""
        names = [each.measure for each in self.measures]
        columns: list[FilledColumn] = [(Column("measure"), names)]
        for heading, figures in (
            ("original", [each.original for each in self.measures]),
            ("again", [each.reproduced for each in self.measures]),
            ("effect ratio", [each.effect_ratio for each in self.measures]),
        ):
            columns.append((Column(heading, "right"), [Cell(rounded(value), value) for value in figures]))
        errors = [Cell(f"{each.rmse:.2g}", each.rmse) for each in self.measures]
        tests = [Cell("" if self.unchanged else p(each.p_ttest), each.p_ttest) for each in self.measures]
        columns[3:3] = [(Column("RMSE", "right"), errors), (Column("t-test", "right"), tests)]
        state = "unchanged" if self.unchanged else "changed"
        tables = [table_of(f"{self.name}: {state}", columns, [*self._rankings(), self._cause()])]
        if self.differences:
            rows = [(each.kind, each.name, each.original, each.reproduced) for each in self.differences]
            heads = Column("what", wrap="never"), Column("name"), Column("original"), Column("again")
            tables.append(Table("what differs", heads, rows))
        return tables

    def _rankings(self) -> list[str]:
        queries = counted(self.queries, "query", "queries")
        if self.unchanged:
            return [f"The rankings and values of all {queries} are the same."]
        notes = [
            f"Kendall's tau union {self.kendall_tau_union:.4f}, rank-biased overlap {self.rbo:.4f}: the "
            f"rankings of {self.other_rankings:,} of {queries} differ."
        ]
        if self.unpaired:
            notes.append(f"{counted(self.unpaired, 'query', 'queries')} in one of the results only.")
        return notes

    def _cause(self) -> str:
        """A sentence that names what differs, input and model first."""
        if not self.differences:
            nothing = "No input, model, setting, version or hardware differs, as the manifests say"
            return f"{nothing}." if self.unchanged else f"{nothing}: the computation itself varies."
        kinds = list(dict.fromkeys(each.kind for each in self.differences))
        named = [f"{kind} ({_some([d.name for d in self.differences if d.kind == kind])})" for kind in kinds]
        return f"{'Although these differ' if self.unchanged else 'By what differs'}: {', '.join(named)}."


@dataclass(frozen=True, repr=False)
class SuiteReproduction(Displayed):
    """A result of a suite and its reproduction.

    Attributes:
        name: Of the suite's folder.
        collections: Of each collection that has a result.
    """

    name: str
    collections: dict[str, Reproduction]

    @property
    def unchanged(self) -> bool:
        """Whether that is so of all collections."""
        return all(each.unchanged for each in self.collections.values())

    def within(self, tolerance: float | None) -> bool:
        """Whether that is so of all collections."""
        return all(each.within(tolerance) for each in self.collections.values())

    def json(self) -> dict[str, Any]:
        """The document that `reproduce --json` prints."""
        collections = {name: each.json() for name, each in self.collections.items()}
        return {"name": self.name, "unchanged": self.unchanged, "collections": collections}

    def tables(self) -> list[Table]:
        """A collection a row, and then what the tables of the changed ones show."""
        found = self.collections.values()
        errors = [max(each.measures, key=lambda measure: measure.rmse) for each in found]
        columns: list[FilledColumn] = [
            (Column("collection"), [*self.collections]),
            (Column("other rankings", "right"), [_of(each.other_rankings, each.queries) for each in found]),
            (Column("tau union", "right"), [_rounded(each.kendall_tau_union) for each in found]),
            (Column("RBO", "right"), [_rounded(each.rbo) for each in found]),
            (Column("largest RMSE", "right"), [Cell(f"{each.rmse:.2g}", each.rmse) for each in errors]),
            (Column("of"), [each.measure if each.rmse else "" for each in errors]),
        ]
        state = "unchanged" if self.unchanged else "changed"
        changed = [each for each in found if not each.unchanged]
        return [
            table_of(f"{self.name}: {state}", columns),
            *(table for each in changed for table in each.tables()),
        ]


def _of(count: int, total: int) -> Cell:
    return Cell(f"{count:,} of {total:,}", count)


def _rounded(value: float) -> Cell:
    return Cell(rounded(value), value)


def compare_with_original(
    original: SavedResult,
    reproduced: SavedResult,
    baselines: tuple[SavedResult, SavedResult] | None = None,
) -> Reproduction:
    """Compare a result with its reproduction.

    Args:
        original: The result.
        reproduced: The same, run again.
        baselines: A baseline of the original and its reproduction, for effect ratios.

    Raises:
        InputError: They have no query or no measure in common, or a baseline lacks a query.
    """
    theirs = set(reproduced.query_ids)
    queries = [query for query in original.query_ids if query in theirs]
    measures = [name for name in original.measures if name in reproduced.measures]
    if not queries or not measures:
        what = "measure" if queries else "query"
        raise InputError(
            f"{original.folder} and {reproduced.folder} have no {what} in common",
            allowed="a result and one of the same benchmark",
            fix="name the result that was run again",
        )
    ours, again = (_values(result, queries, measures) for result in (original, reproduced))
    changes = with_ties(ours - again, np.maximum(np.abs(ours), np.abs(again)))
    errors = measured.root_mean_square_error(changes, np.zeros_like(changes))
    tests = t_test(changes)
    effects = [None] * len(measures)
    if baselines:
        of_baselines = [_values(result, queries, measures) for result in baselines]
        ratios = measured.effect_ratio(ours - of_baselines[0], again - of_baselines[1])
        effects = [None if np.isnan(ratio) else ratio for ratio in ratios.tolist()]
    first, second = read_rankings([original.folder / RUN, reproduced.folder / RUN], queries)
    return Reproduction(
        name=original.record.name,
        queries=len(queries),
        unpaired=len({*original.query_ids} ^ theirs),
        other_rankings=int((~measured.same_rankings(first, second)).sum()),
        kendall_tau_union=float(measured.kendall_tau_union(first, second).mean()),
        rbo=float(measured.rank_biased_overlap(first, second).mean()),
        measures=[
            MeasureAgain(*row)
            for row in zip(
                measures,
                ours.mean(axis=0).tolist(),
                again.mean(axis=0).tolist(),
                errors.tolist(),
                tests.tolist(),
                effects,
                strict=True,
            )
        ],
        differences=differences(original, reproduced),
    )


def read_rankings(files: Sequence[Path], queries: Sequence[str]) -> list[Int64]:
    """The rankings of run files as int64 [queries, k] each, padded with -1.

    Documents are numbered in the order of their ids, alike in all files.

    Raises:
        InputError: A file is not a run.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from pipeline.formats.runs import read_run
    from pipeline.metrics.evaluation import lines_by_query, row_numbers

    runs = [read_run(file) if file.stat().st_size else None for file in files]  # empty: nothing was found
    chunks = [chunk for run in runs if run for chunk in run.documents.chunks]
    ids = pc.unique(pa.chunked_array(chunks, pa.string()))
    ids = ids.take(pc.sort_indices(ids))
    wanted = pa.array(queries, pa.string())
    rankings = []
    for run in runs:
        if run is None:
            rankings.append(np.zeros((len(queries), 0), np.int64))
            continue
        rows = row_numbers(run.query_ids, wanted, absent=len(queries))
        lines, _ = lines_by_query(rows, run, len(queries))
        numbers = np.append(row_numbers(run.documents, ids), -1)
        rankings.append(numbers[lines])
    return rankings


def _values(result: SavedResult, queries: Sequence[str], measures: Sequence[str]) -> Float64:
    """float64 [queries, measures] of a result, in these orders."""
    lacking = {*queries} - {*result.query_ids} or {*measures} - {*result.measures}
    if lacking:
        raise InputError(
            f"{result.folder} has no values of '{min(lacking)}'",
            allowed="a baseline with the queries and measures of the result",
            fix="run it on the same data, with the same evaluate.measures",
        )
    rows = {query: row for row, query in enumerate(result.query_ids)}
    columns = [result.measures.index(name) for name in measures]
    values: Float64 = result.values[[rows[query] for query in queries]][:, columns]
    return values


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    first = ", ".join(names[:4])
    return f"{first} and {len(names) - 4} more" if len(names) > 4 else first
