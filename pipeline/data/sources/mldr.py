"""MLDR's own layout, `Shitao/MLDR`: long documents of a language, and questions with their documents.

`mldr-v1.0-en/corpus.jsonl.gz` has lines of `docid` and `text`; `mldr-v1.0-en/test.jsonl.gz` has lines of
`query_id`, `query`, and `positive_passages` and `negative_passages`, lists of records with a `docid`. They
are judged 1 and 0.

The suite `mldr` reads MTEB's copy, which is in BEIR's layout and pinned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.config.data import MldrSettings
from pipeline.data.sources.listed import join_listed
from pipeline.data.sources.protocol import Source
from pipeline.data.sources.repos import Repo
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments
from pipeline.formats.records import Batch


def open_source(settings: MldrSettings) -> Source:
    """Open the collection that settings name."""
    return Mldr(Repo.open(settings.path, settings.revision), settings.language, settings.split)


@dataclass(frozen=True)
class Mldr:
    """One language of MLDR."""

    repo: Repo
    language: str
    split: str

    def identity(self) -> dict[str, dict[str, Any]]:
        """The commit, or the bytes of local files."""
        rows = self.repo.identity_of(self._file(self.split)) | {"layout": "mldr"}
        corpus = self.repo.identity_of(self._file("corpus")) | {"layout": "mldr"}
        return {"corpus": corpus, "queries": rows, "qrels": rows}

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus' file."""
        return sum(path.stat().st_size for path in self.repo.matching(self._file("corpus"))), "B"

    def passages(self) -> Iterator[Batch]:
        """The documents."""
        for rows in tables.read_rows(self.repo.matching(self._file("corpus")), ["docid", "text"]):
            yield rows.batch(rows.strings("docid"), rows.strings("text"))

    def queries(self) -> Iterator[Batch]:
        """The questions of the split."""
        for rows in self._rows("query"):
            yield rows.batch(rows.strings("query_id"), rows.strings("query"))

    def judgments(self) -> Judgments:
        """Positive passages are judged 1, negative ones 0."""
        columns = ("positive_passages", 1), ("negative_passages", 0)
        return join_listed(self._rows(*(name for name, _ in columns)), "query_id", columns, field="docid")

    def _rows(self, *columns: str) -> Iterator[tables.Rows]:
        return tables.read_rows(self.repo.matching(self._file(self.split)), ["query_id", *columns])

    def _file(self, part: str) -> str:
        return f"mldr-v1.0-{self.language}/{part}.jsonl.gz"
