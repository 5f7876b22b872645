"""Comparison in groups of queries: by k-means, by length, and by overlap with relevant passages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.comparison.pairs import known
from pipeline.comparison.side_by_side import Comparison
from pipeline.core.display import FRAGILE, cut
from pipeline.core.errors import InputError
from pipeline.core.records import (
    Array,
    Collection,
    Float32,
    Float64,
    Int64,
    JsonObject,
    take_texts,
)
from pipeline.core.table import Column, FilledColumn, Table, table_of, with_interval
from pipeline.metrics.definitions import parse_measure
from pipeline.metrics.paired import LEVEL, paired_differences
from pipeline.metrics.scoring import row_numbers
from pipeline.metrics.statistics import Estimate, estimate
from pipeline.results.folder import CollectionResult
from pipeline.storage import vector_shards
from pipeline.studies.groups.group_tests import (
    SMALLEST_MARKED,
    compare_with_rest,
    difference_tests,
    smallest_shown,
)
from pipeline.studies.shared.cached import find_artifacts, find_collection, first_collection
from pipeline.studies.study import Findings

SEED = 0
MOST_CLUSTERS = 8
QUERIES_OF_A_CLUSTER = 30
"""There are at most as many clusters as leave this number of queries to each, on average."""
PARTS = 3
"""Groups by a number, of about as many queries each."""
WORD_DIMENSIONS = 50
QUERIES_GROUPED = 2_000
"""Most queries that a page shows in groups unless it is told to."""
NAME_LENGTH = 40
"""Characters of the query that names a cluster."""


class Grouping(NamedTuple):
    """One way to put every query into a group: the groups' names, and int64 [queries], the group of each."""

    by: str
    names: list[str]
    groups: Int64
    note: str = ""


@dataclass(frozen=True)
class GroupMean:
    """The mean of a result in a group, its 95% interval with its mark, and the mean in all other queries.

    `p_maxt` is of the permutation test of the two means, corrected for all groups and results; None for a
    group that is not tested.
    """

    name: str
    mean: float
    ci_low: float | None
    ci_high: float | None
    fragile: bool
    rest: float
    p_maxt: float | None


@dataclass(frozen=True)
class GroupDifference:
    """The difference of two results in a group, with its interval and mark, and that in all other queries."""

    a: str
    b: str
    difference: float
    ci_low: float | None
    ci_high: float | None
    fragile: bool
    rest: float
    # Of the paired tests in the group, the larger one, not corrected; None for a group that is not tested.
    p: float | None
    p_holm: float | None  # the same by Holm's correction over all groups and pairs
    shown: bool  # whether the two results differ in the group: `p_holm` is below 5%
    # Of the permutation test of the group's difference against that of the rest, corrected for all groups and
    # pairs.
    p_rest_maxt: float | None


@dataclass(frozen=True)
class Group:
    """Some of the queries: what they were grouped by, and the results and pairs of results in them."""

    by: str
    name: str
    query_ids: list[str]
    means: list[GroupMean]
    differences: list[GroupDifference]


@dataclass(frozen=True)
class GroupComparison(Findings):
    """Results in groups of queries."""

    measure: str  # the measure
    groups: list[Group]  # all groups of all groupings
    notes: list[str]  # how they were made, a sentence each without its full stop
    smallest: int  # fewest queries of a group whose differences were tested

    @property
    def heading(self) -> str:
        """Of its section of the page."""
        several = any(group.differences for group in self.groups)
        return "Where they differ" if several else "Where it is weak"

    @property
    def found(self) -> list[tuple[Group, GroupDifference]]:
        """The groups where two results differ otherwise than in the rest, the largest differences first."""
        pairs = [(group, each) for group in self.groups for each in group.differences]
        unlike = [pair for pair in pairs if pair[1].shown and _below(pair[1].p_rest_maxt)]
        return sorted(unlike, key=lambda pair: -abs(pair[1].difference))

    def json(self) -> JsonObject:
        """The part `groups` of what `compare --json` prints."""
        groups = [asdict(group) for group in self.groups]
        return {"notes": self.notes, "smallest": self.smallest, "groups": groups}

    def tables(self) -> list[Table]:
        """The mean of each result in each group; of several results, where two differ as nowhere else."""
        tables = [self._means_table()]
        if any(group.differences for group in self.groups):
            tables.append(self._differences_table())
        return tables

    def _means_table(self) -> Table:
        """A group a row: the mean of each result."""
        columns: list[FilledColumn] = [
            (Column("group"), [group.name for group in self.groups]),
            (Column("by"), [group.by for group in self.groups]),
            (Column("queries", "right", form=","), [len(group.query_ids) for group in self.groups]),
        ]
        for each in zip(*(group.means for group in self.groups), strict=True):
            marks = [" +" if mean.mean > mean.rest else " -" for mean in each]
            marks = [mark if _below(mean.p_maxt) else "" for mark, mean in zip(marks, each, strict=True)]
            cells = [
                with_interval(mean.mean, mean.ci_low, mean.ci_high, mean.fragile, ".4f", mark)
                for mean, mark in zip(each, marks, strict=True)
            ]
            columns.append((Column(each[0].name, "right"), cells))
        marked = (
            "+ and -: significantly above or below the mean of the other queries (permutation test, "
            "corrected for all groups and results by MaxT). "
            f"Groups of fewer than {SMALLEST_MARKED} queries get none."
        )
        notes = [f"{note[:1].upper()}{note[1:]}." for note in self.notes]
        notes += [FRAGILE] if any(mean.fragile for group in self.groups for mean in group.means) else []
        return table_of(f"{self.measure} in groups of queries", columns, [*notes, marked])

    def _differences_table(self) -> Table:
        """A row for a group and a pair of results whose difference in it is unlike that in the rest."""
        found = self.found
        differences = [each for _, each in found]
        cells = [
            with_interval(each.difference, each.ci_low, each.ci_high, each.fragile, "+.4f")
            for each in differences
        ]
        columns: list[FilledColumn] = [
            (Column("group"), [group.name for group, _ in found]),
            (Column("queries", "right", form=","), [len(group.query_ids) for group, _ in found]),
            (Column("a - b"), [f"{each.a} - {each.b}" for each in differences]),
            (Column("difference", "right"), cells),
            (Column("in other queries", "right", form="+.4f"), [each.rest for each in differences]),
            (Column("p, Holm", "right", form="p"), [each.p_holm for each in differences]),
            (Column("unlike the others", "right", form="p"), [each.p_rest_maxt for each in differences]),
        ]
        title = f"where {self.measure} differs more or less than in the other queries"
        small = f"Groups of fewer than {self.smallest} queries are not tested. All groups: --format json."
        if not found:
            return Table(title, [Column("group")], [("in no group",)], [small])
        notes = [
            "p, Holm: the larger p of the paired t-test and the randomization test within the group, "
            f"corrected for all groups and pairs. {small}"
        ]
        notes += [FRAGILE] if any(each.fragile for each in differences) else []
        return table_of(title, columns, notes)


def find_groups(comparison: Comparison, asked: bool | None) -> GroupComparison | None:
    """The results in groups of queries: where they are asked for, or can be had soon for a page."""
    if not asked and (comparison.of_suites or len(comparison.query_ids) > QUERIES_GROUPED):
        return None
    try:
        return groups_of(comparison)
    except InputError:
        if asked:
            raise
        return None  # without the collection; the page says so


def groups_of(comparison: Comparison) -> GroupComparison:
    """Group the queries, and compare results in each group.

    Raises:
        InputError: The results are of suites, or the cache holds the collection of none of them.
    """
    if comparison.loaded[0].only_collection().clusters:
        raise InputError(
            "--groups with evaluate.cluster",
            allowed="results whose queries are drawn one by one",
            fix="leave it out, or run again with --set evaluate.cluster=null, which computes only scores",
        )
    names = [entry.name for entry in comparison.results]
    pairs = [(names.index(pair.a), names.index(pair.b)) for pair in comparison.pairs]
    measure, values, sources = parse_measure(comparison.measure), comparison.values, comparison.sources
    rel, highest = float(measure.settings.get("rel", 1)), measure.definition.highest
    query_ids = sources[0].query_ids
    groupings = _group(sources, query_ids, rel)
    rows = [
        (grouping.by, name, grouping.groups == number)
        for grouping in groupings
        for number, name in enumerate(grouping.names)
    ]
    inside = [row[2] for row in rows]
    first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    differences = paired_differences(values.take(first, 1), values.take(second, 1))
    p_rest = compare_with_rest(values, inside)
    smallest = smallest_shown([int(chosen.sum()) for chosen in inside], len(pairs))
    tested, *p_values = difference_tests(differences, inside, highest, smallest)
    tests = [*p_values, compare_with_rest(differences, inside)]
    groups = []
    for row, (by, name, chosen) in enumerate(rows):
        of_group = _figures(estimate([values[chosen]], low=0, high=highest), values[~chosen])
        means = [
            GroupMean(result, *figures, p)
            for result, figures, p in zip(names, of_group, known(p_rest[row]), strict=True)
        ]
        of_pairs = _figures(tested[row], differences[~chosen])
        p_of_pairs = zip(*(known(test[row]) for test in tests), strict=True)
        compared = [
            GroupDifference(names[a], names[b], *figures, alone, holm, _below(holm), rest)
            for (a, b), figures, (alone, holm, rest) in zip(pairs, of_pairs, p_of_pairs, strict=True)
        ]
        ids = [query_ids[query] for query in np.flatnonzero(chosen).tolist()]
        groups.append(Group(by, name, ids, means, compared))
    notes = [grouping.note for grouping in groupings if grouping.note]
    return GroupComparison(comparison.measure, groups, notes, smallest)


def _group(sources: Sequence[CollectionResult], query_ids: Sequence[str], rel: float) -> list[Grouping]:
    """Groupings with more than one group, by the first collection and query vectors in the caches."""
    collection = first_collection(sources)
    vectors = next(_query_vectors(sources, collection), None)
    rows = row_numbers(pa.array(query_ids, pa.string()), collection.queries.ids)
    texts = take_texts(collection.queries.texts, rows).to_pylist()
    found = [
        _clusters(texts, None if vectors is None else vectors[rows]),
        _by_number("length", np.array([len(_words(text)) for text in texts]), " words"),
        _by_number(
            "overlap", _overlaps(collection, texts, rows, rel), "% of its words in the relevant passages"
        ),
    ]
    return [each for each in found if each is not None and len(each.names) > 1]


def _query_vectors(sources: Sequence[CollectionResult], collection: Collection) -> Iterator[Float32]:
    """Cached vectors of the collection's queries, float32 [queries, d]; of joined rankings each part's."""
    for source in sources:
        opened = find_collection(source)
        if opened and opened.queries.ids.equals(collection.queries.ids):
            for artifact in find_artifacts(source.manifest, "queries"):
                shards = vector_shards.shards_of(artifact.files)
                if shards and all(name.endswith(".npy") for name, _, _ in shards):
                    embeddings = vector_shards.open_embeddings(artifact)
                    yield vector_shards.read_rows(embeddings, 0, len(embeddings))


def _by_number(by: str, values: Array, unit: str) -> Grouping:
    """Groups of about as many queries each, by numbers of the queries; equal ones are in the same group."""
    edges = np.quantile(values, np.arange(1, PARTS) / PARTS, method="inverted_cdf")
    _, groups = np.unique(np.searchsorted(np.unique(edges), values), return_inverse=True)
    names = []
    for inside in (values[groups == group] for group in range(groups.max() + 1)):
        low, high = f"{inside.min():.0f}", f"{inside.max():.0f}"
        span = low if low == high else f"{low} to {high}"
        names.append(span + (" word" if (high, unit) == ("1", " words") else unit))
    return Grouping(by, names, groups.astype(np.int64))


def _clusters(texts: Sequence[str], vectors: Float32 | None) -> Grouping | None:
    """Groups by scikit-learn's k-means, the largest first, each named by the query nearest to its centre."""
    from sklearn.cluster import KMeans

    space = "the vectors of the queries" if vectors is not None else "tf-idf of the words of the queries"
    points = _word_vectors(texts) if vectors is None else vectors
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    points = points / np.where(lengths > 0, lengths, 1).astype(np.float64)
    number = min(MOST_CLUSTERS, len(points) // QUERIES_OF_A_CLUSTER, len(np.unique(points, axis=0)))
    if number < 2:
        return None
    clustering = KMeans(number, n_init=4, random_state=SEED).fit(points)
    order = np.argsort(-np.bincount(clustering.labels_, minlength=number), kind="stable")
    nearest = clustering.transform(points).argmin(axis=0)[order].tolist()
    names = [f"{place}: {cut(texts[query], NAME_LENGTH)}" for place, query in enumerate(nearest, 1)]
    groups: Int64 = np.argsort(order)[clustering.labels_].astype(np.int64)
    note = f"clusters: k-means over {space}; each is named by the query at its centre"
    return Grouping("cluster", names, groups, note)


def _word_vectors(texts: Sequence[str]) -> Float64:
    """float64 [texts, d]: tf-idf of words, reduced by singular value decomposition."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    if len({word for text in texts for word in _words(text)}) < 3:
        return np.zeros((len(texts), 1))
    weights = TfidfVectorizer(analyzer=_words).fit_transform(texts)
    dimensions = min(WORD_DIMENSIONS, *(size - 1 for size in weights.shape))
    points: Float64 = TruncatedSVD(dimensions, random_state=SEED).fit_transform(weights)
    return points


def _overlaps(collection: Collection, texts: Sequence[str], rows: Int64, rel: float) -> Float64:
    """Percent of a query's distinct words that occur in a relevant passage, mean over those passages.

    `rows` are the rows of the queries in the collection.
    """
    qrels = collection.qrels
    is_relevant = (qrels.grades >= rel) & (qrels.passages < len(collection.passages))
    queries, passages = qrels.queries[is_relevant], qrels.passages[is_relevant]
    wanted = np.unique(passages)
    found = take_texts(collection.passages.texts, wanted).to_pylist()
    words = {row: set(_words(text)) for row, text in zip(wanted.tolist(), found, strict=True)}
    shares = []
    for text, row in zip(texts, rows, strict=True):
        asked = set(_words(text))
        first, last = np.searchsorted(queries, (row, row + 1))
        standing = [len(asked & words[passage]) for passage in passages[first:last].tolist()]
        shares.append(np.mean(standing) / len(asked) if asked and standing else 0.0)
    return np.round(100 * np.array(shares))


def _words(text: str) -> list[str]:
    """The words of a text, in lower case: runs of letters, digits and underscores."""
    return re.findall(r"\w+", text.lower())


def _figures(
    inside: Estimate, outside: Float64
) -> list[tuple[float, float | None, float | None, bool, float]]:
    """For each column the mean inside, the ends of its interval, its mark, and the mean outside."""
    columns = inside.means.tolist(), inside.ends, inside.fragile.tolist(), outside.mean(axis=0).tolist()
    return [(mean, *ends, mark, rest) for mean, ends, mark, rest in zip(*columns, strict=True)]


def _below(p_value: float | None) -> bool:
    return p_value is not None and p_value < LEVEL
