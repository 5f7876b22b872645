"""The queries with the largest losses and gains, with texts and the ranks of the relevant passages.

All of it is read from result folders and the cached collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from pipeline.comparison.side_by_side import Comparison
from pipeline.core.display import counted, cut, figure
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float64, Int64, JsonObject, Ranking
from pipeline.core.table import Cell, Column, FilledColumn, Table, right, table_of
from pipeline.metrics.names import parse_measure
from pipeline.studies.shared.cached import find_collection, scored_ranking
from pipeline.studies.study import Findings

TEXT, PASSAGE = 60, 200  # characters shown of a query and of a passage
MOST_RANKS = 3
"""Relevant passages of one query in a table; CSV and JSON have all."""


@dataclass(frozen=True)
class RelevantPassage:
    """A relevant passage of a query: its rank in each result, None where it was not retrieved."""

    passage: str
    grade: float
    rank_a: int | None
    rank_b: int | None
    text: str


@dataclass(frozen=True)
class QueryChange:
    """A query: its values in both results, a minus b, and its relevant passages, the highest grades first."""

    query: str
    text: str
    value_a: float
    value_b: float
    difference: float
    relevant: list[RelevantPassage]


@dataclass(frozen=True)
class PairChanges:
    """The queries that differ most between two results, from the largest loss of a to its largest gain."""

    a: str
    b: str
    queries: list[QueryChange]


@dataclass(frozen=True)
class Changes(Findings):
    """The queries that differ most, for each pair of results."""

    measure: str  # what they are compared by
    pairs: list[PairChanges]  # in the order of the comparison
    known: bool  # whether the collection is in the cache; without it, there are no texts and ranks
    heading = "Queries that differ most"

    def json(self) -> JsonObject:
        """What `compare --json` prints as `changes`."""
        return {"pairs": [asdict(pair) for pair in self.pairs]}

    def csv(self) -> Table:
        """A relevant passage a row; a query without one has one row."""
        names = ("a", "b", "query", "text", "value_a", "value_b", "difference")
        of_passage = ("passage", "grade", "rank_a", "rank_b", "passage_text")
        rows = []
        for pair in self.pairs:
            for change in pair.queries:
                values = [pair.a, pair.b, *(str(getattr(change, name)) for name in names[2:])]
                of_each = [asdict(each).values() for each in change.relevant]
                cells = [["" if value is None else str(value) for value in each] for each in of_each]
                rows += [[*values, *each] for each in cells or [[""] * len(of_passage)]]
        return Table("", [*map(Column, names), *map(Column, of_passage)], rows)

    def tables(self) -> list[Table]:
        """A table of the first pair that differs, a query a row; JSON and CSV have all pairs."""
        return [self._table(next((pair for pair in self.pairs if pair.queries), self.pairs[0]))]

    def _table(self, pair: PairChanges) -> Table:
        changes = pair.queries
        columns: list[FilledColumn] = [
            (Column("query", least=8), [change.query for change in changes]),
            (Column("text", wrap="words"), [cut(change.text, TEXT) for change in changes]),
            (right("a"), [change.value_a for change in changes]),
            (right("b"), [change.value_b for change in changes]),
            (
                right("a - b"),
                [Cell(figure(change.difference, "+.4f"), change.difference) for change in changes],
            ),
            (Column("relevant: rank in a, in b", wrap="words"), [_ranks(each.relevant) for each in changes]),
        ]
        title = f"queries that differ most in {self.measure}, {pair.a} (a) and {pair.b} (b)"
        notes = [
            "–: not retrieved." if self.known else "The collection is not in the cache: no texts and ranks."
        ]
        if others := len(self.pairs) - 1:
            notes.append(f"{counted(others, 'other pair')}: --format json or csv.")
        return table_of(title, columns, notes)


def _ranks(relevant: Sequence[RelevantPassage]) -> str:
    """The ranks of relevant passages as text."""
    shown = [f"{each.passage}: {each.rank_a or '–'}, {each.rank_b or '–'}" for each in relevant[:MOST_RANKS]]
    more = len(relevant) - len(shown)
    return "; ".join([*shown, *([f"{more:,} more"] if more else [])])


def find_changes(comparison: Comparison, count: int | None) -> Changes | None:
    """The largest changes where some are asked for, and not of a result alone or a suite in a folder of many.

    A page has all queries anyway.
    """
    alone = comparison.of_suites or not comparison.pairs
    return None if not count or (comparison.collection and alone) else largest_changes(comparison, count)


def largest_changes(comparison: Comparison, count: int) -> Changes:
    """The largest losses and gains of each pair, `count` queries together; equal ones are left out.

    Raises:
        InputError: The results are of a suite, or there is only one.
    """
    if comparison.of_suites or not comparison.pairs:
        what = "results of suites" if comparison.of_suites else "one result"
        raise InputError(
            f"--queries with {what}",
            allowed="two results or more, of one collection",
            fix="name another result, or the folder of a collection inside the suite",
        )
    names = [entry.name for entry in comparison.results]
    collection = next(filter(None, map(find_collection, comparison.sources)), None)
    rankings: dict[str, Ranking] = {}
    if collection is not None:
        rankings = {
            name: scored_ranking(source, collection)
            for name, source in zip(names, comparison.sources, strict=True)
            if not source.folder.is_file()
        }
    pairs = []
    for pair in comparison.pairs:
        values = comparison.values[:, [names.index(pair.a), names.index(pair.b)]]
        differences = values[:, 0] - values[:, 1]
        rows = _largest(differences, count)
        both = [rankings.get(name) for name in (pair.a, pair.b)]
        details = _Details(comparison, collection, both)
        changes = [
            QueryChange(
                query=comparison.query_ids[row],
                text=details.text(comparison.query_ids[row]),
                value_a=float(values[row, 0]),
                value_b=float(values[row, 1]),
                difference=float(differences[row]),
                relevant=list(details.relevant(comparison.query_ids[row])),
            )
            for row in rows
        ]
        pairs.append(PairChanges(pair.a, pair.b, changes))
    return Changes(comparison.measure, pairs, collection is not None)


def _largest(differences: Float64, count: int) -> list[int]:
    """The rows of the largest losses and gains, half of each where there are as many, losses first."""
    order = np.argsort(differences, kind="stable")
    losses, gains = order[differences[order] < 0], order[differences[order] > 0]
    n_losses = min(len(losses), max(count // 2, count - len(gains)))
    n_gains = min(len(gains), count - n_losses)
    return [*losses[:n_losses].tolist(), *gains[len(gains) - n_gains :].tolist()]


class _Details:
    """Texts and ranks of the queries of two results."""

    def __init__(
        self, comparison: Comparison, collection: Collection | None, rankings: Sequence[Ranking | None]
    ) -> None:
        self.collection, self.rankings = collection, rankings
        self.level = parse_measure(comparison.measure).settings.get("rel", 1)
        self.rows: dict[str, int] = {}
        if collection is not None:
            ids = collection.queries.ids.to_pylist()
            self.rows = {name: row for row, name in enumerate(ids)}
            self.passage_ids = collection.judged_ids

    def text(self, query: str) -> str:
        """The text of a query; "" where the collection is not known."""
        if self.collection is None:
            return ""
        text: str = self.collection.queries.texts[self.rows[query]].as_py()
        return text

    def relevant(self, query: str) -> Iterator[RelevantPassage]:
        """The relevant passages of a query, the highest grades first."""
        if self.collection is None:
            return
        qrels, row = self.collection.qrels, self.rows[query]
        judged = np.flatnonzero((qrels.queries == row) & (qrels.grades >= self.level))
        for entry in judged[np.argsort(-qrels.grades[judged], kind="stable")].tolist():
            passage = int(qrels.passages[entry])
            in_corpus = passage < len(self.collection.passages)
            text = self.collection.passages.texts[passage].as_py() if in_corpus else ""
            rank_a, rank_b = (
                _rank(ranking.passages[row], passage) if ranking else None for ranking in self.rankings
            )
            yield RelevantPassage(
                passage=self.passage_ids[passage].as_py(),
                grade=qrels.grades[entry].item(),
                rank_a=rank_a,
                rank_b=rank_b,
                text=cut(text, PASSAGE),
            )


def _rank(ranked: Int64, passage: int) -> int | None:
    """The rank of a passage from 1; None where it is not among the ranked ones."""
    places = np.flatnonzero(ranked == passage)
    return int(places[0]) + 1 if len(places) else None
