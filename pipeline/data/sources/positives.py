"""Hub datasets of queries and their relevant texts: rows of a query and a list of positives.

The corpus is all positives of all rows, in order, as in FlagEmbedding's tutorial, and a passage's id is its
position; or it is another dataset, and a passage's id is its row number. A query's id is its row number. All
count from 0. A passage is relevant (grade 1) to a query if its text equals one of the query's positives.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config.data import HubSettings, PositivesOf
from pipeline.core.records import Int64, JsonObject, from_numpy
from pipeline.data.sources.repos import Repo
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments, make_judgments
from pipeline.formats.tables import TableRows
from pipeline.formats.texts import Batch

if TYPE_CHECKING:
    import pyarrow as pa


def open_positives(settings: HubSettings) -> Positives:
    """Open the collection that settings name."""
    corpus = Repo.open(settings.corpus_path, None) if settings.corpus_path else None
    return Positives(settings, Repo.open(settings.path, settings.revision), corpus)


@dataclass(frozen=True)
class Positives:
    """A dataset with a column of queries and one of positives, and perhaps another with the corpus."""

    config: HubSettings
    rows: Repo  # of queries and positives
    corpus: Repo | None  # None if the positives are the corpus

    def identity(self) -> dict[str, JsonObject]:
        """Commits or bytes of the datasets, and the columns."""
        rows = self.rows.identity(None, self.config.split)
        positives = rows | {"positives_column": self.config.positives_column}
        queries = rows | {"query_column": self.config.query_column}
        if self.corpus:
            corpus = self.corpus.identity(None, self.config.corpus_split)
            corpus |= {"corpus_column": self.config.corpus_column}
        else:  # with a slice, only queries with a positive in it are judged
            corpus = positives = positives | {"positives_of": self._first_rows}
        return {"corpus": corpus, "queries": queries, "qrels": positives}

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus' files."""
        return sum(path.stat().st_size for path in self._corpus_files()), "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus, ids counted from 0."""
        start = 0
        for rows, texts, parents in self._texts():
            ids = from_numpy(np.arange(start, start + len(texts))).cast("string")
            start += len(texts)
            yield replace(rows.batch(ids, texts), numbers=[rows.numbers[row] for row in parents])

    def queries(self) -> Iterator[Batch]:
        """The queries, ids counted from 0."""
        column, start = self.config.query_column, 0
        for rows in tables.read_rows(self._row_files(), [column]):
            ids = from_numpy(np.arange(start, start + len(rows))).cast("string")
            start += len(rows)
            yield rows.batch(ids, rows.strings(column))

    def judgments(self) -> Judgments:
        """Query and passage for each positive in the corpus, joined by text.

        A positive that the corpus does not have gets an id that the corpus does not have; with
        `{positives_of: N}`, which is a slice, it is left out and counted.
        """
        import pyarrow as pa

        queries_of = self._queries_by_positive()
        queries, passages = array("q"), array("q")
        found: set[str] = set()
        start = 0
        for _, texts, _ in self._texts():
            for position, text in enumerate(texts.to_pylist(), start):
                if text in queries_of:
                    found.add(text)
                    queries.extend(queries_of[text])
                    passages.extend([position] * len(queries_of[text]))
            start += len(texts)
        absent = [rows for text, rows in queries_of.items() if text not in found]
        outside = sum(map(len, absent)) if self._first_rows is not None else 0
        absent = [] if outside else absent
        absent_rows = np.array(list(chain.from_iterable(absent)), np.int64)
        query_rows = np.concatenate([np.frombuffer(queries, np.int64), absent_rows])
        missing_ids = [f"absent-{number}" for number, rows in enumerate(absent) for _ in rows]
        missing = pa.array(missing_ids, pa.string())
        judgments = make_judgments(
            from_numpy(query_rows).cast("string"),
            pa.concat_arrays([from_numpy(np.frombuffer(passages, np.int64)).cast("string"), missing]),
            np.ones(len(query_rows), np.int64),
            f"dataset {self.rows.name} ({self.config.split})",
            "row",
            query_rows,
        )
        return replace(judgments, outside=outside)

    def _queries_by_positive(self) -> dict[str, list[int]]:
        """For the text of each positive the rows of the queries that it answers."""
        queries_of: dict[str, list[int]] = {}
        column, start = self.config.positives_column, 0
        for rows in tables.read_rows(self._row_files(), [column]):
            texts, parents = rows.lists(column)
            for text, row in zip(texts.to_pylist(), (start + parents).tolist(), strict=True):
                answered = queries_of.setdefault(text, [])
                if not answered or answered[-1] != row:
                    answered.append(row)
            start += len(rows)
        return queries_of

    def _texts(self) -> Iterator[tuple[TableRows, pa.Array, Int64]]:
        """The corpus: rows, their texts, and for each text its row among them."""
        if self.corpus:
            column = self.config.corpus_column
            for rows in tables.read_rows(self._corpus_files(), [column]):
                yield rows, rows.strings(column), np.arange(len(rows))
            return
        column, left = self.config.positives_column, self._first_rows
        for rows in tables.read_rows(self._corpus_files(), [column]):
            texts, parents = rows.lists(column)
            if left is not None:
                inside = int(np.searchsorted(parents, left))
                texts, parents = texts[:inside], parents[:inside]
                left = max(0, left - len(rows))
            yield rows, texts, parents

    @property
    def _first_rows(self) -> int | None:
        """The number of rows whose positives are the corpus; None is all."""
        return self.config.corpus.positives_of if isinstance(self.config.corpus, PositivesOf) else None

    def _row_files(self) -> list[Path]:
        return self.rows.files(None, self.config.split)

    def _corpus_files(self) -> list[Path]:
        return self.corpus.files(None, self.config.corpus_split) if self.corpus else self._row_files()
