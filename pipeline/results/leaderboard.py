"""Entries of a comparison, and the tables that show them and their pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.core.display import counted, decimal, interval, p, rate, rounded, signed, size
from pipeline.core.table import NO_INTERVAL, SOFT_HYPHEN, Cell, Column, Table, table_of
from pipeline.metrics.randomization import PERMUTATIONS
from pipeline.results.correction import Correction
from pipeline.results.pairs import Pair


@dataclass(frozen=True)
class Entry:
    """One result.

    Attributes:
        name: Of the benchmark; with a part of its path where two have the same.
        mean: Of the measure, as in `metrics.json`.
        ci_low, ci_high: Ends of the mean's 95% interval; None where none is shown.
        queries: How many were judged.
        letters: Two results that share a letter were not shown to differ; "a" goes with the highest mean.
            None with a baseline, as not every two are tested.
        passages_per_second: Encoded and then indexed, loading the model not counted; None where the run that
            finished the encoding found all of it done by interrupted ones.
        queries_per_second: Encoded and then searched, likewise.
        index_bytes: Size of the index on disk.
        seconds: Of all stages, in the runs that finished them: what it costs with an empty cache, unless a
            run was interrupted and resumed.
        rank_low, rank_high: The best and the worst rank that it may have, of as many as there are results;
            see `pipeline.metrics.equivalence.rank_intervals`. None where not every two are tested, and with
            the correction `bh`.
    """

    name: str
    mean: float
    ci_low: float | None
    ci_high: float | None
    queries: int
    letters: str | None
    passages_per_second: float | None
    queries_per_second: float | None
    index_bytes: int | None
    seconds: float | None
    rank_low: int | None = None
    rank_high: int | None = None


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
    Column("rank", "right", "never"),
    *(Column(name, "right", "never", section="cost", hint=hint) for name, hint in COST.items()),
)
GROUPS = "Results that share a letter under 'group' were not shown to differ."
RANKS = "'rank' is what a result may have among these, with 95% for all at once."


def leaderboard(measure: str, entries: Sequence[Entry]) -> Table:
    """A result a row: how good it is and what it costs; without columns that are empty in all rows."""
    several = len(entries) > 1
    best = rounded(max(entry.mean for entry in entries))
    rows = [
        (
            entry.name,
            Cell(rounded(entry.mean), entry.mean, strong=rounded(entry.mean) == best),
            Cell(interval(entry.ci_low, entry.ci_high), entry.ci_low),
            (entry.letters or "") if several else "",
            _ranks(entry) if several else "",
            Cell(rate(entry.passages_per_second), entry.passages_per_second),
            Cell(rate(entry.queries_per_second), entry.queries_per_second),
            Cell(size(entry.index_bytes), entry.index_bytes),
            Cell(decimal(entry.seconds, 1), entry.seconds),
        )
        for entry in entries
    ]
    queries = counted(entries[0].queries, "query", "queries")
    columns = zip(LEADERBOARD, zip(*rows, strict=True), strict=True)
    absent = any(entry.ci_low is None for entry in entries)
    lettered = several and entries[0].letters
    ranked = several and entries[0].rank_low
    said = (GROUPS, lettered), (RANKS, ranked), (NO_INTERVAL, absent)
    notes = [note for note, holds in said if holds]
    return table_of(f"{measure} over {queries}", columns, notes)


def _ranks(entry: Entry) -> str:
    if entry.rank_low is None:
        return ""
    same = entry.rank_low == entry.rank_high
    return Cell(f"{entry.rank_low}" if same else f"{entry.rank_low} to {entry.rank_high}", entry.rank_low)


FEW = 100
"""Up to so many queries, tables have Wilcoxon's p."""
PAIRS = (
    Column("a - b", least=13),
    Column("difference [95%]", "right", "words"),
    *(
        Column(name, "right", "never")
        for name in (
            "[95%, all pairs]",
            "t-test",
            "Wilcoxon",
            f"random{SOFT_HYPHEN}ization",
            "Holm",
            "MaxT",
            "BH",
            "equivalence",
            "w/t/l",
        )
    ),
)
TESTS = (
    f"The p-values are two-sided and paired: of the t-test, of {PERMUTATIONS:,} randomizations, and both "
    "corrected for the number of pairs, the t-test's by Holm, the randomization's by MaxT. An interval "
    "beside a difference is of that pair alone; '[95%, all pairs]' holds for all pairs at once."
)
EQUIVALENCE = "= marks a pair whose means are shown to differ by less than the margin."
COUNTS = "w/t/l counts the queries where a wins, ties and loses."
STARS = {
    Correction.both: "* marks a difference shown at 5%, both by Holm's p and by MaxT's.",
    Correction.holm: "* marks a difference shown at 5% by Holm's p.",
    Correction.maxt: "* marks a difference shown at 5% by MaxT's p.",
    Correction.bh: "* marks a difference shown by Benjamini and Hochberg's p: 5% of such are false.",
}


def pair_table(
    measure: str,
    pairs: Sequence[Pair],
    correction: Correction,
    over: str = "query by query",
    counts: str = COUNTS,
) -> Table:
    """A pair a row: its difference, and how likely chance alone is to make it as large.

    `over` ends the title, and `counts` says what w/t/l counts.
    """
    rows = []
    for pair in pairs:
        star = " *" if pair.shown else ""
        marked = {Correction.holm: pair.p_holm, Correction.bh: pair.p_bh}.get(correction, pair.p_maxt)
        decisive = Cell(p(marked) + star, marked)
        rows.append(
            (
                f"{pair.a} - {pair.b}",
                Cell(_with_interval(pair), pair.difference),
                Cell(_bracketed(pair.simultaneous_low, pair.simultaneous_high), pair.simultaneous_low),
                Cell(p(pair.p_ttest), pair.p_ttest),
                _wilcoxon(pair),
                Cell(p(pair.p_randomization), pair.p_randomization),
                decisive if correction is Correction.holm else Cell(p(pair.p_holm), pair.p_holm),
                decisive
                if correction in (Correction.maxt, Correction.both)
                else Cell(p(pair.p_maxt), pair.p_maxt),
                decisive if correction is Correction.bh else "",
                _equivalence(pair),
                Cell(f"{pair.wins:,}/{pair.ties:,}/{pair.losses:,}", pair.wins),
            )
        )
    columns = [(column, [row[number] for row in rows]) for number, column in enumerate(PAIRS)]
    title = f"differences in {measure}, {over}"
    equivalences = f" {EQUIVALENCE}" if any(pair.p_equivalent is not None for pair in pairs) else ""
    return table_of(title, columns, [f"{TESTS} {STARS[correction]} {counts}{equivalences}"])


def _wilcoxon(pair: Pair) -> str:
    few = pair.wins + pair.ties + pair.losses <= FEW
    return Cell(p(pair.p_wilcoxon), pair.p_wilcoxon) if few and pair.p_wilcoxon is not None else ""


def _equivalence(pair: Pair) -> str:
    if pair.p_equivalent is None:
        return ""
    return Cell(p(pair.p_equivalent) + (" =" if pair.equivalent else ""), pair.p_equivalent)


def _with_interval(pair: Pair) -> str:
    return f"{signed(pair.difference)} {_bracketed(pair.ci_low, pair.ci_high)}".rstrip()


def _bracketed(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{signed(low)},{signed(high)}]"
