"""Hub datasets of queries and their relevant texts: rows of a query and a list of positives.

The corpus is all positives of all rows, in order, as in FlagEmbedding's tutorial, and a passage's id is its
position; or it is another dataset, and a passage's id is its row number. A query's id is its row number. All
count from 0. A passage is relevant (grade 1) to a query if its text equals one of the query's positives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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

    @property
    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus' files."""
        return sum(path.stat().st_size for path in self._corpus_files()), "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus, ids counted from 0."""
        start = 0
        for rows, texts, parents in self._texts():
            ids = from_numpy(np.arange(start, start + len(texts))).cast("string")
            start += len(texts)
            numbers = [rows.numbers[row] for row in parents]
            yield Batch(ids, texts, None, rows.origin, rows.unit, numbers, rows.advance)

    def queries(self) -> Iterator[Batch]:
        """The queries, ids counted from 0."""
        column, start = self.config.query_column, 0
        for rows in tables.read_rows(self._row_files(), [column]):
            ids = from_numpy(np.arange(start, start + len(rows))).cast("string")
            start += len(rows)
            yield Batch(ids, rows.strings(column), None, rows.origin, rows.unit, rows.numbers, rows.advance)

    def judgments(self) -> Judgments:
        """Query and passage for each positive in the corpus, joined by text.

        A positive that the corpus does not have gets an id that the corpus does not have; with
        `{positives_of: N}`, which is a slice, it is left out and counted.
        """
        import pandas as pd
        import pyarrow as pa

        texts, rows, start = [], [], 0
        for part, of_part, parents in self._positives(None):
            texts.append(of_part)
            rows.append(start + parents)
            start += len(part)
        numbered = pa.chunked_array(texts, pa.string()).dictionary_encode().combine_chunks()
        positives = pd.DataFrame(
            {"text": numbered.indices.to_numpy(), "query": np.concatenate([*rows, np.zeros(0, np.int64)])}
        )
        known = pd.Index(numbered.dictionary.to_pylist(), dtype=object)  # hashed once, for all of the corpus
        places = [known.get_indexer(corpus.to_pylist()) for _, corpus, _ in self._texts()]
        passages = pd.DataFrame({"text": np.concatenate([*places, np.zeros(0, np.int64)])})
        passages = passages.reset_index(names="passage").query("text >= 0")
        judged = positives.drop_duplicates().merge(passages, "left", on="text")
        absent = judged["passage"].isna()
        outside = int(absent.sum()) if self._first_rows is not None else 0
        if outside:
            judged, absent = judged[~absent], absent[~absent]
        ids = judged["passage"].fillna(-1).astype(np.int64).astype(str)
        ids[absent] = [f"absent-{number}" for number in pd.factorize(judged["text"][absent])[0]]
        judgments = make_judgments(
            from_numpy(judged["query"].to_numpy()).cast("string"),
            pa.array(ids.tolist(), pa.string()),
            np.ones(len(judged), np.int64),
            f"dataset {self.rows.name} ({self.config.split})",
            "row",
            judged["query"].to_numpy(),
        )
        return replace(judgments, outside=outside)

    def _positives(self, most: int | None) -> Iterator[tuple[TableRows, pa.Array, Int64]]:
        """The first `most` rows or all, the texts of their positives, and for each text its row in a part."""
        column = self.config.positives_column
        for rows in tables.read_rows(self._row_files(), [column]):
            texts, parents = rows.lists(column)
            if most is not None:
                inside = int(np.searchsorted(parents, most))
                texts, parents = texts[:inside], parents[:inside]
                most = max(0, most - len(rows))
            yield rows, texts, parents

    def _texts(self) -> Iterator[tuple[TableRows, pa.Array, Int64]]:
        """The corpus: rows, their texts, and for each text its row among them."""
        if not self.corpus:
            yield from self._positives(self._first_rows)
            return
        column = self.config.corpus_column
        for rows in tables.read_rows(self._corpus_files(), [column]):
            yield rows, rows.strings(column), np.arange(len(rows))

    @property
    def _first_rows(self) -> int | None:
        """The number of rows whose positives are the corpus; None is all."""
        return self.config.corpus.positives_of if isinstance(self.config.corpus, PositivesOf) else None

    def _row_files(self) -> list[Path]:
        return self.rows.files(None, self.config.split)

    def _corpus_files(self) -> list[Path]:
        return self.corpus.files(None, self.config.corpus_split) if self.corpus else self._row_files()
