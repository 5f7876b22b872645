"""What a comparison shows: a sentence, the leaderboard, the pairs, and the pairs on each collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pipeline.comparison.pairs import CollectionDifference, Pair
from pipeline.core.display import AFTER_MEAN, BYTES, FRAGILE, counted, enumerated, figure, interval
from pipeline.core.records import JsonObject
from pipeline.core.table import SOFT_HYPHEN, Cell, Column, FilledColumn, Table, right, table_of
from pipeline.metrics.paired import PERMUTATIONS
from pipeline.results.tables import GROUPED, MACRO, SUCH, intervals_of, mean_sentence


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One result; its attributes are in the order of JSON and CSV."""

    name: str  # of the benchmark; with a part of its path where two have the same
    mean: float  # of the measure, as in `metrics.json`; of a suite the macro mean, as in `suite.json`
    ci_low: float | None  # ci_low, ci_high: ends of the mean's 95% interval; None where none is shown
    ci_high: float | None
    queries: int  # how many were judged, in all collections together
    # Where two results share one, their difference may be chance; "a" has the highest mean. None with a
    # baseline, as not every two are tested.
    letters: str | None = None
    fragile: bool  # whether one unseen query that loses everything outweighs the interval
    rank: int  # among the results, by mean
    best: int  # on how many collections its mean is the highest
    by_collection: dict[str, float]  # the mean on each collection of a suite
    # passages_per_second, queries_per_second, index_bytes, bytes_per_passage, seconds: As of `Cost`; of
    # suites the seconds alone.
    passages_per_second: float | None
    queries_per_second: float | None
    index_bytes: int | None
    bytes_per_passage: float | None
    seconds: float | None
    # rank_low, rank_high: The best and the worst rank that it may have, of as many as there are results; see
    # `pipeline.metrics.paired.standings`. None where not every two are tested.
    rank_low: int | None = None
    rank_high: int | None = None
    over_collections_low: float | None = None  # over_collections_low, _high: as of `over_collections`
    over_collections_high: float | None = None
    rank_over_low: int | None = None  # rank_over_low, _high: best and worst rank over all such collections
    rank_over_high: int | None = None


class ColumnGroup(NamedTuple):
    """What is known of each result beside quality and the cost of its run."""

    name: str  # of the group, in JSON
    # For each result its figures as JSON; None where nothing is known of it.
    documents: list[JsonObject | None]
    columns: list[FilledColumn]  # of the leaderboard, a cell for each result
    notes: list[str]  # what to know before comparing them, sentences without their full stops


class PastRun(NamedTuple):
    """A result of a name: when it ended, as UTC in ISO 8601, and its mean.

    `shown` says whether it differs from the one before by more than chance, tested as a pair.
    """

    created: str
    mean: float
    shown: bool


class History(NamedTuple):
    """The results of a name, the oldest first."""

    name: str
    runs: list[PastRun]


COST = (
    (BYTES, "bytes_per_passage", ",.0f", "what each passage adds to the index"),
    ("passages/s", "passages_per_second", "rate", "encoded and indexed per second once the model is loaded"),
    ("queries/s", "queries_per_second", "rate", "queries encoded and searched per second"),
    ("seconds", "seconds", ",.1f", "time of all stages, each in the run that completed it"),
)
"""Column, attribute of `Entry`, form, and what it is; the first is shown beside a measured latency too."""
GROUPS = "group: between results that share a letter the difference may be chance."
RANKS = "rank: simultaneous 95% interval of each result's place."
SUITE_RANKS = (
    "'rank' is by macro mean, and beside it the ranks that the tests of all pairs leave possible. 'best' "
    "counts the collections on which a result has the highest mean."
)
OVER_RANKS = f"Ranks of {SUCH}: by t-tests over the collections, with Holm's correction."
RANK_OVER = f"rank, {SUCH}"

IN_SHORT = {"result", MACRO, "mean", "95% interval", SUCH, "group", "best", BYTES, "queries/s", "seconds"}
ROOMY = 100
"""Characters of a terminal that shows the other columns of a leaderboard in short, too."""


def leaderboard(
    measure: str,
    entries: Sequence[Entry],
    groups: Mapping[str, str],
    added: Sequence[FilledColumn] = (),
    short: bool = False,
) -> Table:
    """A result a row: how good it is, and what it costs or its mean on every collection.

    `groups` has the group of each collection that is in one, and `added` are further costs; where they are
    known of all results, speeds of the runs are left out, and so are columns that are empty in all rows. In
    short, ranks and their explanation are left out, and some columns need a wide terminal.
    """
    several = len(entries) > 1
    grouped, ranked = len(entries) > (2 if short else 1), several and not short
    collections = list(entries[0].by_collection)
    of_suites = bool(collections)
    columns: list[FilledColumn] = [
        (Column("result", least=8), [entry.name for entry in entries]),
        (right(MACRO if of_suites else "mean", best=True), [entry.mean for entry in entries]),
        (
            right("95% interval"),
            [Cell(interval(each.ci_low, each.ci_high, each.fragile), each.ci_low) for each in entries],
        ),
        (right(SUCH), [(entry.over_collections_low, entry.over_collections_high) for entry in entries]),
    ]
    if grouped:
        columns.append((Column("group", wrap="never"), [entry.letters or "" for entry in entries]))
    if ranked:
        columns += [
            (right("rank"), [_rank(entry) for entry in entries]),
            (right(RANK_OVER), [_places(entry.rank_over_low, entry.rank_over_high) for entry in entries]),
        ]
    queries = counted(entries[0].queries, "query", "queries")
    measured = any(all(isinstance(cell, int | float) for cell in cells) for _, cells in added)
    costs: list[FilledColumn] = [
        (
            right(name, section="" if of_suites else "cost", hint=hint, form=form),
            [getattr(entry, attribute) for entry in entries],
        )
        for name, attribute, form, hint in (COST[:1] if measured else COST)
    ]
    costs += added
    if of_suites:
        best = right("best", form="", hint="collections with the highest mean")
        columns.append((best, [entry.best if several else None for entry in entries]))
        columns += costs
        for name in collections:
            column = right(name, section="by collection", best=True)
            columns.append((column, [entry.by_collection[name] for entry in entries]))
        over = any(entry.over_collections_low is not None for entry in entries)
        queries = f"{counted(len(collections), 'collection')}, {queries}; {intervals_of(over)}"
    else:
        columns += costs
    if short and (grouped or not of_suites):
        always = IN_SHORT.union(column.name for column, _ in added)
        columns = [
            (replace(column, section="", from_width=0 if column.name in always else ROOMY), cells)
            for column, cells in columns
        ]
    notes = [GROUPS] if grouped and entries[0].letters else []
    if ranked and (of_suites or entries[0].rank_low):
        notes.append(SUITE_RANKS if of_suites else RANKS)
    if ranked and any(entry.rank_over_low for entry in entries):
        notes.append(OVER_RANKS)
    notes += [FRAGILE] if any(entry.fragile for entry in entries) else []
    if groups:
        notes.append(GROUPED.format(", ".join(sorted(set(groups.values())))))
    return table_of(f"{measure} over {queries}", columns, notes)


def _rank(entry: Entry) -> str:
    """The places that the tests leave possible; of suites, after the place by macro mean."""
    if not entry.by_collection:
        return _places(entry.rank_low, entry.rank_high)
    possible = f" ({entry.rank_low} to {entry.rank_high})" if entry.rank_low else ""
    return Cell(f"{entry.rank}{possible}", entry.rank)


def _places(low: int | None, high: int | None) -> str:
    return "" if low is None else Cell(str(low) if low == high else f"{low} to {high}", low)


TESTS = (
    f"p: two-sided and paired, of a t-test and of {PERMUTATIONS:,} randomizations; Holm corrects the t-test "
    "for the number of pairs."
)
SIMULTANEOUS = (
    "difference [95%]: this pair alone; * corrects for all. [95%, all pairs]: valid for all together."
)
COUNTS = "w/t/l: queries where a wins, ties, loses."
SUITE_COUNTS = "w/t/l: collections where a wins, ties, loses."
OF_QUERIES = "Randomizations are of single queries."
STAR = "* = significant at 5% after correction."
SHORT_NOTES = (STAR, COUNTS, SUITE_COUNTS)
DETECTS = "detects: the smallest true difference that these queries show with 80% power."
EACH = (
    "* = significant at 5% on that collection: by the larger p of t-test and randomization, after Holm's "
    "correction over all collections and pairs."
)


def star(pair: Pair | CollectionDifference) -> str:
    """The mark of a difference that is shown; "*~" where its interval is fragile."""
    return f" *{'~' * pair.fragile}" if pair.shown else ""


def pair_table(
    measure: str, pairs: Sequence[Pair], detect: float | None = None, short: bool = False
) -> Table:
    """A pair a row: its difference, and how likely chance alone is to make it as large.

    In short, there is one interval and one p: those that hold for all pairs. With `detect`, the table also
    has how many queries detect such a difference.
    """
    of_suites = bool(pairs and pairs[0].collections)
    simultaneous = [
        Cell(
            interval(pair.simultaneous_low, pair.simultaneous_high, pair.fragile, "+.4f", "[{}, {}]"),
            pair.simultaneous_low,
        )
        for pair in pairs
    ]
    own = [interval(pair.ci_low, pair.ci_high, pair.fragile, "+.4f", AFTER_MEAN) for pair in pairs]
    if short and any(simultaneous):
        own = [""] * len(pairs)
    differences = [
        Cell(f"{figure(pair.difference, '+.4f')}{ends}", pair.difference)
        for pair, ends in zip(pairs, own, strict=True)
    ]
    such = [(pair.over_collections_low, pair.over_collections_high) for pair in pairs]
    columns: list[FilledColumn] = [
        (Column("a - b", least=13), [f"{pair.a} - {pair.b}" for pair in pairs]),
        (
            Column("difference" if short and not any(own) else "difference [95%]", "right", "words"),
            differences,
        ),
        (right("[95%, all pairs]"), simultaneous),
        (right(SUCH, form="+.4f"), such),
    ]
    if short:
        decided = [Cell(figure(pair.deciding_p, "p") + star(pair), pair.deciding_p) for pair in pairs]
        columns.append((right("p"), decided))
    else:
        corrected = [Cell(figure(pair.p_holm, "p") + star(pair), pair.p_holm) for pair in pairs]
        columns += [
            (right("t-test", form="p"), [pair.p_ttest for pair in pairs]),
            (right(f"random{SOFT_HYPHEN}ization", form="p"), [pair.p_randomization for pair in pairs]),
            (right("Holm"), corrected),
            (right("detects"), [pair.detects for pair in pairs]),
        ]
    if detect is not None:
        needed = right(f"queries for {detect:g}", form=",")
        columns.append((needed, [pair.queries_to_detect for pair in pairs]))
    counts = [Cell(f"{pair.wins:,}/{pair.ties:,}/{pair.losses:,}", pair.wins) for pair in pairs]
    columns.append((right("w/t/l"), counts))
    explained = [
        TESTS,
        SIMULTANEOUS if any(simultaneous) else "",
        STAR if any(pair.shown for pair in pairs) else "",
        DETECTS if any(pair.detects for pair in pairs) else "",
        OF_QUERIES if of_suites else "",
        SUITE_COUNTS if of_suites else COUNTS,
    ]
    notes = [" ".join(note for note in explained if note and (not short or note in SHORT_NOTES))]
    notes += [FRAGILE] if any(pair.fragile for pair in pairs) else []
    has_such = any(low is not None for low, _ in such)
    over = f"of macro means; {intervals_of(has_such)}" if of_suites else "query by query"
    return table_of(f"differences in {measure}, {over}", columns, notes)


MOST_PAIRS = 6
"""More pairs than these are shown in short only where they have the best result."""


def each_collection(measure: str, pairs: Sequence[Pair]) -> Table:
    """A pair a row, and a collection a column: its difference there, with a star where it is shown."""
    columns: list[FilledColumn] = [(Column("a - b", least=13), [f"{pair.a} - {pair.b}" for pair in pairs])]
    for number, first in enumerate(pairs[0].collections):
        column = Column(first.collection, "right", "never")
        differences = [pair.collections[number] for pair in pairs]
        cells = [Cell(figure(each.difference, "+.4f") + star(each), each.difference) for each in differences]
        columns.append((column, cells))
    return table_of(f"differences in {measure} on each collection", columns, [EACH])


def standing(
    measure: str, results: Sequence[Entry], pairs: Sequence[Pair], baseline: str | None
) -> tuple[str, list[str], list[Pair]]:
    """What a verdict begins with, what it says of other results, by kind, and the pairs that it is of."""
    best = max(results, key=lambda entry: entry.mean)
    mean = f"macro mean of {measure}" if best.by_collection else measure
    ends = best.mean, best.ci_low, best.ci_high, best.fragile
    if not pairs:
        what = f"{'The ' * bool(best.by_collection)}{mean} of {best.name}"
        return mean_sentence(what, *ends, best.queries), [], []
    if len(pairs) == 1:
        return _of_pair(measure, pairs[0]), [], [*pairs]
    if baseline:
        opening, against = f"Against {baseline} in {measure}", [*pairs]
        names = [pair.a for pair in pairs]
        signs = {"better:": 1, "worse:": -1}
    else:
        around = interval(*ends[1:], ends=AFTER_MEAN)
        opening = f"{best.name} has the highest {mean}, {figure(best.mean)}{around}"
        against = [pair for pair in pairs if best.name in (pair.a, pair.b)]
        names = [pair.b if pair.a == best.name else pair.a for pair in against]
        signs = {"significantly better than": 0}
    named = [*zip(names, against, strict=True)]
    kinds = {
        kind: [name for name, pair in named if pair.shown and sign * pair.difference >= 0]
        for kind, sign in signs.items()
    }
    kinds["no significant difference from"] = [name for name, pair in named if not pair.shown]
    return opening, [f"{kind} {enumerated(names)}" for kind, names in kinds.items() if names], against


def _of_pair(measure: str, pair: Pair) -> str:
    """A pair: the difference with its interval and the corrected p."""
    first, second = (pair.a, pair.b) if pair.difference >= 0 else (pair.b, pair.a)
    low, high = pair.ci_low, pair.ci_high
    if first == pair.b and low is not None and high is not None:
        low, high = -high, -low
    p = figure(pair.deciding_p, "p")
    p = f"p < {p[1:]}" if p.startswith("<") else f"p = {p}"
    by = f"{figure(abs(pair.difference))}{interval(low, high, pair.fragile, ends=AFTER_MEAN)}"
    if pair.shown:
        return f"{first} is better than {second} in {measure} by {by} ({p})"
    apart = low is not None and low > 0
    why = "; not shown by the randomization test" if apart else ""
    return f"No significant difference between {first} and {second} in {measure}: {by} ({p}{why})"
