"""Entries and pairs of a comparison, and the tables that show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.core.display import counted, decimal, interval, p, rate, rounded, signed, size
from pipeline.core.table import SOFT_HYPHEN, Cell, Column, Table, table_of
from pipeline.metrics.statistics import PERMUTATIONS

LEVEL = 0.05
"""A difference counts as shown where Holm's p and the randomization test's are below this."""


@dataclass(frozen=True)
class Entry:
    """One result.

    Attributes:
        name: Of the benchmark; with a part of its path where two have the same.
        mean: Of the measure, as in `metrics.json`.
        ci_low, ci_high: Ends of the mean's 95% interval.
        queries: How many were judged.
        letters: Two results that share a letter were not shown to differ; "a" goes with the highest mean.
        passages_per_second: Encoded and then indexed, loading the model not counted; None where the run that
            finished the encoding found all of it done by interrupted ones.
        queries_per_second: Encoded and then searched, likewise.
        index_bytes: Size of the index on disk.
        seconds: Of all stages, in the runs that finished them: what it costs with an empty cache, unless a
            run was interrupted and resumed.
    """

    name: str
    mean: float
    ci_low: float
    ci_high: float
    queries: int
    letters: str
    passages_per_second: float | None
    queries_per_second: float | None
    index_bytes: int | None
    seconds: float | None


@dataclass(frozen=True)
class Pair:
    """Two results, query by query.

    Attributes:
        a, b: Their names.
        difference: Mean of a minus mean of b.
        ci_low, ci_high: Ends of the difference's 95% interval.
        p_ttest, p_randomization: Of the two-sided paired tests.
        p_holm: `p_ttest` by Holm's correction over all pairs.
        wins, ties, losses: Queries where a has the higher value, the same, the lower.
    """

    a: str
    b: str
    difference: float
    ci_low: float
    ci_high: float
    p_ttest: float
    p_randomization: float
    p_holm: float
    wins: int
    ties: int
    losses: int

    @property
    def shown(self) -> bool:
        """Whether both tests show the difference: the t-test alone may do so with two queries."""
        return self.p_holm < LEVEL and self.p_randomization < LEVEL


COST = {
    "passages/s": "passages encoded and indexed per second, without the time to load the model",
    "queries/s": "queries encoded and searched per second",
    "index": "size on disk",
    "seconds": "time of all stages, each in the run that completed it",
}
LEADERBOARD = (
    Column("result", least=8),
    *(Column(name, "right", "never") for name in ("mean", "95% interval")),
    Column("group", wrap="never"),
    *(Column(name, "right", "never", section="cost", hint=hint) for name, hint in COST.items()),
)
PAIRS = (
    Column("a - b", least=13),
    Column("difference [95%]", "right", "words"),
    *(Column(name, "right", "never") for name in ("t-test", f"random{SOFT_HYPHEN}ization", "Holm", "w/t/l")),
)
GROUPS = "Results that share a letter under 'group' were not shown to differ."
TESTS = (
    f"The p-values are two-sided and paired: of the t-test, of {PERMUTATIONS:,} randomizations, and of the "
    "t-test with Holm's correction for the number of pairs. * marks a difference shown at 5%, both by Holm's "
    "p and by the randomization test's. w/t/l counts the queries where a wins, ties and loses."
)


def leaderboard(measure: str, entries: Sequence[Entry]) -> Table:
    """A result a row: how good it is and what it costs; without columns that are empty in all rows."""
    several = len(entries) > 1
    best = rounded(max(entry.mean for entry in entries))
    rows = [
        (
            entry.name,
            Cell(rounded(entry.mean), entry.mean, strong=rounded(entry.mean) == best),
            Cell(interval(entry.ci_low, entry.ci_high), entry.ci_low),
            entry.letters if several else "",
            Cell(rate(entry.passages_per_second), entry.passages_per_second),
            Cell(rate(entry.queries_per_second), entry.queries_per_second),
            Cell(size(entry.index_bytes), entry.index_bytes),
            Cell(decimal(entry.seconds, 1), entry.seconds),
        )
        for entry in entries
    ]
    queries = counted(entries[0].queries, "query", "queries")
    columns = zip(LEADERBOARD, zip(*rows, strict=True), strict=True)
    return table_of(f"{measure} over {queries}", columns, [GROUPS] if several else [])


def pair_table(measure: str, pairs: Sequence[Pair]) -> Table:
    """A pair a row: its difference, and how likely chance alone is to make it as large."""
    rows = [
        (
            f"{pair.a} - {pair.b}",
            Cell(
                f"{signed(pair.difference)} [{signed(pair.ci_low)},{signed(pair.ci_high)}]", pair.difference
            ),
            Cell(p(pair.p_ttest), pair.p_ttest),
            Cell(p(pair.p_randomization), pair.p_randomization),
            Cell(p(pair.p_holm) + (" *" if pair.shown else ""), pair.p_holm),
            Cell(f"{pair.wins:,}/{pair.ties:,}/{pair.losses:,}", pair.wins),
        )
        for pair in pairs
    ]
    return Table(f"differences in {measure}, query by query", PAIRS, rows, [TESTS])
