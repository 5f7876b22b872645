"""What a reader of measures is shown: their table, and what to know of the rankings and judgments."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TextIO

import numpy as np

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

    def note(self) -> str:
        """The sentence for a reader of the measures, without its full stop, as of all notes here."""
        queries = counted(self.queries, "query", "queries")
        return f"fewer than {self.cutoff:,} passages were found for {queries} ({self.fewest:,} at the fewest)"


class Ties(Record):
    """How many queries have equal scores across a measure's cutoff, and which share of all queries."""

    queries: int
    share: float

    def note(self) -> str:
        """The sentence for a reader of the measures."""
        queries = counted(round(self.queries / self.share), "query", "queries")
        verb = "has" if self.queries == 1 else "have"
        return (
            f"{self.queries:,} of {queries} ({self.share:.0%}) {verb} equal scores at a cutoff: "
            "ties are broken by id, as trec_eval does"
        )


class MissingTexts(Record):
    """Judged passages and queries that the collection lacks."""

    handling: Literal["count", "drop"]  # the setting `data.missing_passages`
    passages: int  # how many judged passages the corpus lacks
    judgments: int  # how many judgments are of these
    relevant: int  # how many of those have at least grade 1
    queries: int  # how many judged queries have no text; they are not run

    def note(self) -> str:
        """The sentence on passages for a reader of the measures."""
        judged = f"{counted(self.judgments, 'judgment')} of {counted(self.passages, 'passage')}"
        how = "left out" if self.handling == "drop" else "counted as not retrieved"
        return (
            f"{judged} that the corpus lacks {'is' if self.judgments == 1 else 'are'} {how}, "
            f"{self.relevant:,} of them relevant (data.missing_passages: {self.handling})"
        )


class Caveats(Record):
    """What to know before trusting the measures of a ranking; the default of each says nothing."""

    missing: MissingTexts | None = None  # what was judged and is not in the collection; None of a run file
    clusters: tuple[str | None, ...] = ()  # of each judged query by `evaluate.cluster`; None: it has none
    unjudged_queries: int = 0  # how many queries, or queries of a run file, have no judgment and no score
    unjudged_copies: int = 0  # how many passages that nobody judged have the text of a relevant one
    queries_as_passages: int = 0  # how many queries stand in the corpus as a passage with another id
    queries_under_own_ids: int = 0  # how many stand there with their own id, and are not left out
    ignored_relevant: int = 0  # how many relevant passages `data.ignored` leaves out for their query
    like_random: tuple[int, float] | None = None  # as of `pipeline.metrics.scoring.random_hits`
    collection_note: str = ""  # what the collection says of itself, in `note.txt`, and that it is a slice
    missing_queries: int = 0  # how many judged queries a run file lacks; they score 0
    missing_ids: tuple[str, ...] = ()  # the first of these
    short_rankings: ShortRankings | None = None  # only where a ranking ends before the deepest cutoff
    ties: Ties | None = None  # only where documents on both sides of a measure's cutoff have equal scores

    @property
    def notes(self) -> list[str]:
        """What a reader of the measures should know, a sentence each without its full stop."""
        without_text = self.missing.queries if self.missing else 0
        counts = [
            (self.unjudged_copies, "passage that nobody judged has", "passages that nobody judged have",
             "the text of a relevant one"),
            (self.queries_as_passages, "query stands", "queries stand", "in the corpus as a passage"),
            (self.queries_under_own_ids, "query is", "queries are",
             "a passage of the same id (left out with data.ignored: identical_ids)"),
            (self.ignored_relevant, "relevant passage is", "relevant passages are",
             "left out for having the query's id"),
            (self.missing_queries, "judged query is", "judged queries are",
             "not in the run, and each scores 0"),
            (without_text, "judged query without a text is", "judged queries without a text are",
             "left out; trec_eval -c gives them a 0"),
        ]  # fmt: skip
        notes = [self.collection_note] if self.collection_note else []
        notes += [_note_on_clusters(self.clusters)] if self.clusters else []
        notes += [_note_on_random_hits(*self.like_random)] if self.like_random else []
        notes += [f"{counted(number, one, many)} {rest}" for number, one, many, rest in counts if number]
        if self.missing_ids:
            named = ", ".join(self.missing_ids) + ", ..." * (self.missing_queries > len(self.missing_ids))
            notes.append(f"the run lacks the {'queries' if self.missing_queries > 1 else 'query'} {named}")
        notes += [fact.note() for fact in (self.ties, self.short_rankings) if fact]
        return [*notes, self.missing.note()] if self.missing and self.missing.judgments else notes


def _note_on_clusters(clusters: Sequence[str | None]) -> str:
    alone = clusters.count(None)
    number = counted(alone + len({*clusters} - {None}), "cluster")
    return f"the queries are in {number}, each of which counts as one in intervals and tests"


def _note_on_random_hits(found: int, expected: float) -> str:
    return (
        f"the first ten hits hold {counted(found, 'relevant passage')}, and those of a random order "
        f"{expected:g}: check that the judgments belong to these queries and passages"
    )


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
    shown = [Cell(interval(low, high, mark), low) for (low, high), mark in zip(ends, marks, strict=True)]
    columns: list[FilledColumn] = [
        (Column("measure"), means),
        *([(right("before reranking"), map(before.get, means))] if before else []),
        (right("mean"), means.values()),
        (Column("95% interval", "right"), shown),
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


def read_per_query(path: Path) -> tuple[list[str], list[str], Float64]:
    """The queries, the measures and the values, float64 [queries, measures]; ValueError if it is damaged."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file)
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if (not lines and header[1:]) or any(len(line) != len(header) for line in lines):
        raise ValueError("the file is cut short")
    values = np.array([line[1:] for line in lines], np.float64).reshape(len(lines), len(header) - 1)
    return [line[0] for line in lines], header[1:], values
