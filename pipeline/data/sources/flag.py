"""FlagEmbedding's evaluation layout, as `FlagEmbedding.evaluation.custom` reads it.

The lines of `corpus.jsonl` are `{"id", "title", "text"}` (the title optional), of `<split>_queries.jsonl`
`{"id", "text"}` and of `<split>_qrels.jsonl` `{"qid", "docid", "relevance"}`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.data import FlagFolderSettings
from pipeline.data.sources.folders import FolderSource
from pipeline.data.sources.protocol import Source
from pipeline.formats import jsonl, tables
from pipeline.formats.judgments import Judgments
from pipeline.formats.records import Batch


def open_source(settings: FlagFolderSettings) -> Source:
    """Open the collection that settings name."""
    queries, qrels = f"{settings.split}_queries.jsonl", f"{settings.split}_qrels.jsonl"
    return FlagFolder.find(settings.path, ["corpus.jsonl"], [queries], [qrels])


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
