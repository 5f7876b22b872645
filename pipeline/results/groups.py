"""Comparison of results in groups of queries: where each is weak, and where two really differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.core.arrow import from_numpy
from pipeline.core.display import p, rounded, signed, signed_interval
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Collection, Float64
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.metrics.group_tests import compare_with_rest, difference_tests, smallest_shown
from pipeline.metrics.statistics import shown_intervals
from pipeline.results.cached import find_collection, find_query_vectors
from pipeline.results.folder import SavedResult
from pipeline.results.grouping import Grouping, groupings_of

LEVEL = 0.05
"""A difference counts as shown where its corrected p is below this."""


@dataclass(frozen=True)
class GroupMean:
    """The mean of a result in a group.

    Attributes:
        name: Of the result.
        mean: In the group.
        ci_low, ci_high: Ends of its 95% interval; None where none is shown.
        rest: The mean in all other queries.
        p_holm: Of Welch's test of the two means, by Holm's correction; None for a group that is not tested.
    """

    name: str
    mean: float
    ci_low: float | None
    ci_high: float | None
    rest: float
    p_holm: float | None


@dataclass(frozen=True)
class GroupDifference:
    """The difference of two results in a group.

    Attributes:
        a, b: Names of the results.
        difference: Mean of a minus mean of b, in the group.
        ci_low, ci_high: Ends of its 95% interval, as of this group alone; None where none is shown.
        rest: The difference in all other queries.
        p: Of the paired tests in the group, the larger one, not corrected; None for a group that is not
            tested.
        p_holm: The same by Holm's correction over all groups and pairs.
        shown: Whether the two results really differ in the group: `p_holm` is below 5%.
        p_rest_holm: Of Welch's test of the group's difference against that of the rest, by Holm's correction.
    """

    a: str
    b: str
    difference: float
    ci_low: float | None
    ci_high: float | None
    rest: float
    p: float | None
    p_holm: float | None
    shown: bool
    p_rest_holm: float | None


@dataclass(frozen=True)
class Group:
    """Some of the queries.

    Attributes:
        by: What the queries were grouped by; see `pipeline.results.grouping.Grouping`.
        name: Of the group.
        query_ids: Its queries.
        means: Of each result.
        differences: Of each pair.
    """

    by: str
    name: str
    query_ids: list[str]
    means: list[GroupMean]
    differences: list[GroupDifference]


@dataclass(frozen=True)
class GroupComparison:
    """Results in groups of queries.

    Attributes:
        measure: The measure.
        groups: All groups of all groupings.
        notes: How they were made, a sentence each without its full stop.
        smallest: Fewest queries of a group whose differences were tested.
    """

    measure: str
    groups: list[Group]
    notes: list[str]
    smallest: int

    @property
    def found(self) -> list[tuple[Group, GroupDifference]]:
        """The groups where two results really differ, those first whose difference is unlike the rest's."""
        pairs = [(group, each) for group in self.groups for each in group.differences if each.shown]
        return sorted(pairs, key=lambda pair: (not _below(pair[1].p_rest_holm), -abs(pair[1].difference)))

    def json(self) -> dict[str, Any]:
        """The part `groups` of what `compare --json` prints."""
        return {
            "notes": self.notes,
            "smallest": self.smallest,
            "groups": [asdict(group) for group in self.groups],
        }

    def tables(self) -> list[Table]:
        """The mean of each result in each group; and of several results, the groups where two differ."""
        tables = [self.means_table()]
        if any(group.differences for group in self.groups):
            tables.append(self.differences_table())
        return tables

    def means_table(self) -> Table:
        """A group a row: its queries, and the mean of each result."""
        names = [each.name for each in self.groups[0].means] if self.groups else []
        columns: list[FilledColumn] = [
            (Column("group"), [group.name for group in self.groups]),
            (Column("by"), [group.by for group in self.groups]),
            (Column("queries", "right"), [_count(group) for group in self.groups]),
        ]
        for number, name in enumerate(names):
            cells = [_mean(group.means[number]) for group in self.groups]
            columns.append((Column(name, "right"), cells))
        marked = (
            "+ and - mark means above and below that of the other queries, by Welch's t-test with Holm's "
            "correction."
        )
        notes = [f"{note[:1].upper()}{note[1:]}." for note in self.notes]
        return table_of(f"{self.measure} in groups of queries", columns, [*notes, marked])

    def differences_table(self) -> Table:
        """A group and a pair of results that really differ in it a row."""
        found = self.found
        columns: list[FilledColumn] = [
            (Column("group"), [group.name for group, _ in found]),
            (Column("queries", "right"), [_count(group) for group, _ in found]),
            (Column("a - b"), [f"{each.a} - {each.b}" for _, each in found]),
            (Column("difference", "right"), [_difference(each) for _, each in found]),
            (Column("in other queries", "right"), [Cell(signed(each.rest), each.rest) for _, each in found]),
            (Column("p, Holm", "right"), [_p(each.p_holm) for _, each in found]),
            (Column("unlike the others", "right"), [_p(each.p_rest_holm) for _, each in found]),
        ]
        tested = sum(each.p is not None for group in self.groups for each in group.differences)
        notes = [
            "p is the larger of the paired t-test and the randomization test in the group, corrected for "
            f"all {tested:,} tests of groups and pairs; groups of fewer than {self.smallest} queries are not "
            "tested. The last column is p that the difference is that of the other queries."
        ]
        if not found:
            rows = [("no group shows a difference",)]
            return Table(f"where {self.measure} differs", [Column("group")], rows, notes)
        return table_of(f"where {self.measure} differs", columns, notes)


def compare_groups(
    sources: Sequence[SavedResult],
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    measure: str,
    query_ids: Sequence[str],
    values: Float64,
    differences: Float64,
    rel: int,
) -> GroupComparison:
    """Group the queries, and compare results in each group.

    Args:
        sources: The results.
        names: Their names.
        pairs: Positions of the results to compare.
        measure: What `values` holds.
        query_ids: The queries.
        values: float64 [queries, results].
        differences: float64 [queries, pairs].
        rel: The lowest grade that counts as relevant.

    Raises:
        InputError: The cache holds the collection of none of the results.
    """
    groupings = _group(sources, query_ids, rel)
    rows = [
        (grouping.by, name, grouping.groups == number)
        for grouping in groupings
        for number, name in enumerate(grouping.names)
    ]
    inside = [row[2] for row in rows]
    p_rest = compare_with_rest(values, inside)
    smallest = smallest_shown([int(chosen.sum()) for chosen in inside], len(pairs))
    tests = [*difference_tests(differences, inside, smallest), compare_with_rest(differences, inside)]
    groups = []
    for row, (by, name, chosen) in enumerate(rows):
        means = [
            GroupMean(names[column], *figures, _known(p_rest[row, column]))
            for column, figures in enumerate(_figures(values, chosen))
        ]
        compared = []
        for column, figures in enumerate(_figures(differences, chosen)):
            alone, holm, rest = (_known(test[row, column]) for test in tests)
            a, b = pairs[column]
            compared.append(GroupDifference(names[a], names[b], *figures, alone, holm, _below(holm), rest))
        ids = [query_ids[query] for query in np.flatnonzero(chosen).tolist()]
        groups.append(Group(by, name, ids, means, compared))
    return GroupComparison(measure, groups, [each.note for each in groupings if each.note], smallest)


def _group(sources: Sequence[SavedResult], query_ids: Sequence[str], rel: int) -> list[Grouping]:
    """The groupings of the queries, by the first collection and the first query vectors in the caches."""
    collections = [find_collection(source.manifest) for source in sources]
    own = [(source, each) for source, each in zip(sources, collections, strict=True) if each is not None]
    if not own:
        caches = sorted({str(source.manifest.config.get("cache")) for source in sources})
        raise InputError(
            f"groups of queries: the collection of the results is not in its cache ({', '.join(caches)})",
            allowed="results whose collection is in the cache",
            fix="run a config again, or start the command in the folder that holds the cache",
        )
    collection = own[0][1]
    texts = _texts(collection, query_ids)
    others = [other for _, each in own[1:] if each and (other := _texts(each, query_ids)) != texts]
    for source, each in own:
        vectors = find_query_vectors(source.manifest)
        if vectors is not None and each.queries.ids.equals(collection.queries.ids):
            return groupings_of(collection, query_ids, vectors, rel, others)
    return groupings_of(collection, query_ids, None, rel, others)


def _texts(collection: Collection, query_ids: Sequence[str]) -> list[str]:
    import pyarrow as pa

    from pipeline.metrics.evaluation import row_numbers

    rows = row_numbers(pa.array(query_ids, pa.string()), collection.queries.ids)
    texts: list[str] = collection.queries.texts.take(from_numpy(rows)).to_pylist()
    return texts


def _figures(values: Float64, inside: BoolArray) -> list[tuple[float, float | None, float | None, float]]:
    """For each column the mean inside, the ends of its interval, and the mean outside."""
    intervals = [interval or (None, None) for interval in shown_intervals(values[inside])]
    means, rest = values[inside].mean(axis=0).tolist(), values[~inside].mean(axis=0).tolist()
    return [(mean, *ends, other) for mean, ends, other in zip(means, intervals, rest, strict=True)]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _below(p_value: float | None) -> bool:
    return p_value is not None and p_value < LEVEL


def _count(group: Group) -> Cell:
    return Cell(f"{len(group.query_ids):,}", len(group.query_ids))


def _mean(mean: GroupMean) -> Cell:
    mark = (" +" if mean.mean > mean.rest else " -") if _below(mean.p_holm) else ""
    ends = "" if mean.ci_low is None else f"\n{rounded(mean.ci_low)} to {rounded(mean.ci_high)}"
    return Cell(rounded(mean.mean) + mark + ends, mean.mean)


def _difference(each: GroupDifference) -> Cell:
    ends = signed_interval(each.ci_low, each.ci_high)
    return Cell(signed(each.difference) + (f"\n{ends}" if ends else ""), each.difference)


def _p(value: float | None) -> Cell:
    return Cell("" if value is None else p(value), value)
