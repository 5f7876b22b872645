"""FlagEmbedding's evaluation layout, as `FlagEmbedding.evaluation.custom` reads it.

The lines of `corpus.jsonl` are `{"id", "title", "text"}` (the title optional), of `<split>_queries.jsonl`
`{"id", "text"}` and of `<split>_qrels.jsonl` `{"qid", "docid", "relevance"}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pipeline.config.data import DataSettings, LocatedSettings
from pipeline.config.settings import LocalPath
from pipeline.data.sources.folders import FolderSource
from pipeline.data.sources.protocol import Source
from pipeline.formats import jsonl, tables
from pipeline.formats.judgments import Judgments
from pipeline.formats.records import Batch


class FlagFolderSettings(LocatedSettings):
    """FlagEmbedding's evaluation layout."""

    source: Literal["flag"] = DataSettings.narrowed("source", "flag")
    path: LocalPath = LocatedSettings.narrowed("path", doc="folder of the collection")

    def open(self) -> Source:
        """See `DataSettings.open`."""
        queries, qrels = f"{self.split}_queries.jsonl", f"{self.split}_qrels.jsonl"
        return FlagFolder.find(self.path, ["corpus.jsonl"], [queries], [qrels])


class FlagFolder(FolderSource):
    """A collection in FlagEmbedding's evaluation layout."""

    layout = "flag"
    expected = (
        "FlagEmbedding's layout: corpus.jsonl, <split>_queries.jsonl and <split>_qrels.jsonl, "
        "each plain or .gz"
    )
    judgments_files = "*_qrels.jsonl"

    def passages(self) -> Iterator[Batch]:
        """The corpus."""
        return jsonl.read_texts(self.corpus_file, "id", "title")

    def queries(self) -> Iterator[Batch]:
        """The queries."""
        return jsonl.read_texts(self.queries_file, "id")

    def judgments(self) -> Judgments:
        """The judgments."""
        return tables.read_judgments([self.qrels_file], "qid", "docid", "relevance")
