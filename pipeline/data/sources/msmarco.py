"""MS MARCO's own files: `collection.tsv`, `queries.<split>.tsv` and `qrels.<split>.tsv`.

A line of the collection is `pid, text`, of the queries `qid, text`, of the judgments `qid, 0, pid, grade`.
If there is no collection, the passages of `top1000.<split>.tsv` (lines of `qid, pid, query, passage`) are the
corpus, each once, in order of appearance; if there is no file of queries, its queries are the queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.config.data import MsMarcoSettings
from pipeline.data.sources.folders import FolderSource
from pipeline.data.sources.protocol import Source
from pipeline.formats import tsv
from pipeline.formats.judgments import Judgments
from pipeline.formats.qrels import read_qrels
from pipeline.formats.records import Batch

TEXTS, TOP = "id text", "query-id passage-id query passage"


def open_source(settings: MsMarcoSettings) -> Source:
    """Open the collection that settings name."""
    top = [f"top1000.{settings.split}.tsv", f"top1000.{settings.split}"]
    return MsMarcoFolder.find(
        settings.path,
        corpus=["collection.tsv", *top],
        queries=[f"queries.{settings.split}.tsv", *top],
        qrels=[f"qrels.{settings.split}.tsv"],
    )


class MsMarcoFolder(FolderSource):
    """MS MARCO's passage ranking files; a top 1000 may take the place of the corpus and of the queries."""

    layout = "msmarco"
    expected = (
        "MS MARCO's files: collection.tsv, queries.<split>.tsv and qrels.<split>.tsv, each plain or .gz, "
        "such as queries.dev.small.tsv for split dev.small; or top1000.<split>.tsv for the first two"
    )
    judgments_files = "qrels.*.tsv"

    def identity(self) -> dict[str, dict[str, Any]]:
        """The files' bytes, and whether they are read as a top 1000."""
        parts = super().identity()
        parts["corpus"]["top1000"] = _is_top(self.corpus_file)
        parts["queries"]["top1000"] = _is_top(self.queries_file)
        return parts

    def passages(self) -> Iterator[Batch]:
        """The corpus."""
        if _is_top(self.corpus_file):
            return tsv.read_repeated_texts(self.corpus_file, TOP, id_column=1, text_column=3)
        return tsv.read_texts(self.corpus_file, TEXTS, id_column=0, text_column=1)

    def queries(self) -> Iterator[Batch]:
        """The queries."""
        if _is_top(self.queries_file):
            return tsv.read_repeated_texts(self.queries_file, TOP, id_column=0, text_column=2)
        return tsv.read_texts(self.queries_file, TEXTS, id_column=0, text_column=1)

    def judgments(self) -> Judgments:
        """The judgments."""
        return read_qrels(self.qrels_file)


def _is_top(path: Path) -> bool:
    return path.name.startswith("top1000")
