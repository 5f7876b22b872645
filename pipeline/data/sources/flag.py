"""How is FlagEmbedding's evaluation layout read? As `FlagEmbedding.evaluation.custom` takes it.

The lines of `corpus.jsonl` are `{"id", "title", "text"}` (the title optional), of `<split>_queries.jsonl`
`{"id", "text"}` and of `<split>_qrels.jsonl` `{"qid", "docid", "relevance"}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.config.data import DataSettings, LocatedSettings
from pipeline.config.settings import LocalPath
from pipeline.formats import jsonl, tables
from pipeline.formats.blocks import collection_folder, find, hashed
from pipeline.formats.source import Batch, Judgments, Source

LAYOUT = (
    "FlagEmbedding's layout: corpus.jsonl, <split>_queries.jsonl and <split>_qrels.jsonl, each plain or .gz"
)
QUERY, PASSAGE, GRADE = "qid", "docid", "relevance"


class FlagFolderSettings(LocatedSettings):
    """FlagEmbedding's evaluation layout."""

    source: Literal["flag"] = DataSettings.narrowed("source", "flag")
    path: LocalPath = LocatedSettings.narrowed("path", doc="folder of the collection")

    def open(self) -> Source:
        """See `DataSettings.open`."""
        return FlagFolder.open(self.path, self.split)


@dataclass(frozen=True)
class FlagFolder:
    """A collection in FlagEmbedding's evaluation layout."""

    corpus_file: Path
    queries_file: Path
    qrels_file: Path

    @staticmethod
    def open(path: str | None, split: str) -> FlagFolder:
        """Find the files.

        Raises:
            InputError: The folder or one of its files is not there.
        """
        folder = collection_folder(path, LAYOUT)
        names = ("corpus.jsonl", f"{split}_queries.jsonl", f"{split}_qrels.jsonl")
        return FlagFolder(*(find(folder, [name], LAYOUT) for name in names))

    def identity(self) -> dict[str, dict[str, Any]]:
        """The three files' bytes."""
        return {
            "corpus": {"layout": "flag", **hashed(self.corpus_file)},
            "queries": {"layout": "flag", **hashed(self.queries_file)},
            "qrels": {"layout": "flag", **hashed(self.qrels_file)},
        }

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus file."""
        return self.corpus_file.stat().st_size, "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus."""
        return jsonl.read(self.corpus_file, "id", "title")

    def queries(self) -> Iterator[Batch]:
        """The queries."""
        return jsonl.read(self.queries_file, "id")

    def judgments(self) -> Judgments:
        """The judgments."""
        return tables.read_judgments([self.qrels_file], QUERY, PASSAGE, GRADE)
