"""What a reader of measures is shown: their table, and what to know of the rankings and judgments."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Literal, TextIO

from pipeline.core.display import FRAGILE, counted, interval
from pipeline.core.records import Float64
from pipeline.core.result_records import Record
from pipeline.core.table import Cell, Column, FilledColumn, Table, right, table_of
from pipeline.metrics.definitions import Measure
from pipeline.metrics.statistics import SHOWN_FROM

NO_INTERVAL = f"No interval: fewer than {SHOWN_FROM} queries."


class ShortRankings(Record):
    """How many queries have fewer hits than the deepest cutoff of the measures, and the fewest of one."""

    queries: int
    fewest: int
    cutoff: int


class Ties(Record):
    """How many queries have equal scores across a measure's cutoff, and which share of all queries."""

    queries: int
    share: float


class MissingTexts(Record):
    """Judged passages and queries that the collection lacks."""

    handling: Literal["count", "drop"]  # the setting `data.missing_passages`
    passages: int  # how many judged passages the corpus lacks
    judgments: int  # how many judgments are of these
    relevant: int  # how many of those have at least grade 1
    queries: int  # how many judged queries have no text; they are not run


def counted_notes(*facts: tuple[int, str, str, str]) -> list[str]:
    """A sentence for each number above 0: the number, its noun for one or for many, and the rest."""
    return [f"{counted(number, one, many)} {rest}" for number, one, many, rest in facts if number]


def scoring_notes(
    short: ShortRankings | None,
    ties: Ties | None,
    missing: MissingTexts | None = None,
    missing_queries: int = 0,
    ignored_relevant: int = 0,
    missing_ids: Sequence[str] = (),
) -> list[str]:
    """What a reader of measures should know of rankings and judgments, a sentence each without full stop."""
    left_out = "left out for having the query's id"
    one, many = "judged query without a text is", "judged queries without a text are"
    notes = counted_notes(
        (ignored_relevant, "relevant passage is", "relevant passages are", left_out),
        (missing_queries, "judged query is", "judged queries are", "not in the run, and each scores 0"),
        (missing.queries if missing else 0, one, many, "left out; trec_eval -c gives them a 0"),
    )
    if missing_ids:
        named = ", ".join(missing_ids) + (", ..." if missing_queries > len(missing_ids) else "")
        notes.append(f"the run lacks the {'queries' if missing_queries > 1 else 'query'} {named}")
    if ties:
        queries = counted(round(ties.queries / ties.share), "query", "queries")
        verb = "has" if ties.queries == 1 else "have"
        notes.append(
            f"{ties.queries:,} of {queries} ({ties.share:.0%}) {verb} equal scores at a cutoff: "
            "ties are broken by id, as trec_eval does"
        )
    if short:
        queries = counted(short.queries, "query", "queries")
        notes.append(
            f"fewer than {short.cutoff:,} passages were found for {queries} ({short.fewest:,} at the fewest)"
        )
    if missing and missing.judgments:
        judged = f"{counted(missing.judgments, 'judgment')} of {counted(missing.passages, 'passage')}"
        how = "left out" if missing.handling == "drop" else "counted as not retrieved"
        notes.append(
            f"{judged} that the corpus lacks {'is' if missing.judgments == 1 else 'are'} {how}, "
            f"{missing.relevant:,} of them relevant (data.missing_passages: {missing.handling})"
        )
    return notes


def measure_table(
    title: str,
    means: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float] | None],
    fragile: Mapping[str, bool],
    judged: Mapping[str, float],
    published: Mapping[str, tuple[float, str]] | None = None,
    before: Mapping[str, float] | None = None,
) -> Table:
    """A measure a row, with the 95% interval of its mean where there is one, and its mark.

    `judged` has, for some measures, the share of the top k that is judged; it is shown where one is below 1.
    `published` has the published mean of some measures, and the verdict on it; `before` the mean of each
    before the ranking was reranked.
    """
    ends = [intervals.get(name) or (None, None) for name in means]
    marks = [fragile.get(name, False) for name in means]
    columns: list[FilledColumn] = [
        (Column("measure"), means),
        *([(right("before reranking"), map(before.get, means))] if before else []),
        (right("mean"), means.values()),
        (
            Column("95% interval", "right"),
            [Cell(interval(low, high, mark), low) for (low, high), mark in zip(ends, marks, strict=True)],
        ),
    ]
    notes = [NO_INTERVAL] if means and all(low is None for low, _ in ends) else []
    notes += [FRAGILE] if any(marks) else []
    if any(share < 1 for share in judged.values()):
        columns.append((right("top k judged"), map(judged.get, means)))
    if published:
        columns.append((right("published"), [published.get(n, (None,))[0] for n in means]))
        columns.append((Column("verdict", wrap="words"), [published.get(n, (0, ""))[1] for n in means]))
    return table_of(title, columns, notes, keep_empty=True)


def write_per_query(
    file: TextIO, query_ids: Sequence[str], measures: Sequence[Measure], values: Float64
) -> None:
    """Write `values`, float64 [queries, measures], in full precision as CSV, to a file with newline=""."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["query_id", *map(str, measures)])
    writer.writerows([query, *row] for query, row in zip(query_ids, values.tolist(), strict=True))
