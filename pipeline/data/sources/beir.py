"""How is a BEIR folder read? `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`, plain or gzip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.formats import jsonl, tsv
from pipeline.formats.blocks import collection_folder, find, hashed
from pipeline.formats.source import Batch, Judgments

LAYOUT = "BEIR's layout: corpus.jsonl, queries.jsonl and qrels/<split>.tsv, each plain or .gz"
QRELS = "query-id corpus-id score"


@dataclass(frozen=True)
class BeirFolder:
    """A collection in BEIR's layout."""

    corpus_file: Path
    queries_file: Path
    qrels_file: Path

    @staticmethod
    def open(path: str | None, split: str) -> BeirFolder:
        """Find the files.

        Raises:
            InputError: The folder or one of its files is not there.
        """
        folder = collection_folder(path, LAYOUT)
        return BeirFolder(
            find(folder, ["corpus.jsonl"], LAYOUT),
            find(folder, ["queries.jsonl"], LAYOUT),
            find(folder, [f"qrels/{split}.tsv"], LAYOUT),
        )

    def identity(self) -> dict[str, dict[str, Any]]:
        """The three files' bytes."""
        return {
            "corpus": {"layout": "beir", **hashed(self.corpus_file)},
            "queries": {"layout": "beir", **hashed(self.queries_file)},
            "qrels": {"layout": "beir", **hashed(self.qrels_file)},
        }

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus file."""
        return self.corpus_file.stat().st_size, "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus; a line is `{"_id": ..., "title": ..., "text": ...}`, the title optional."""
        return jsonl.read(self.corpus_file, "_id", "title")

    def queries(self) -> Iterator[Batch]:
        """The queries; a line is `{"_id": ..., "text": ...}`."""
        return jsonl.read(self.queries_file, "_id")

    def judgments(self) -> Judgments:
        """The judgments; a header and lines of query id, passage id and score."""
        return tsv.read_judgments(self.qrels_file, QRELS, header=True)
