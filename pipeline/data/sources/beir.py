"""BEIR folders: `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`, plain or gzip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.data.sources.folders import CollectionFiles, collection_folder, find
from pipeline.formats import jsonl
from pipeline.formats.judgments import Judgments
from pipeline.formats.qrels import read_qrels
from pipeline.formats.records import Batch

LAYOUT = "BEIR's layout: corpus.jsonl, queries.jsonl and qrels/<split>.tsv, each plain or .gz"


@dataclass(frozen=True)
class BeirFolder(CollectionFiles):
    """A collection in BEIR's layout."""

    layout = "beir"

    @staticmethod
    def open(path: str | None, split: str) -> BeirFolder:
        """Find the files.

        Raises:
            InputError: The folder or one of its files is missing.
        """
        folder = collection_folder(path, LAYOUT)
        return BeirFolder(
            find(folder, ["corpus.jsonl"], LAYOUT),
            find(folder, ["queries.jsonl"], LAYOUT),
            find(folder, [f"qrels/{split}.tsv"], LAYOUT),
        )

    def passages(self) -> Iterator[Batch]:
        """The corpus; a line is `{"_id": ..., "title": ..., "text": ...}`, the title optional."""
        return jsonl.read_texts(self.corpus_file, "_id", "title")

    def queries(self) -> Iterator[Batch]:
        """The queries; a line is `{"_id": ..., "text": ...}`."""
        return jsonl.read_texts(self.queries_file, "_id")

    def judgments(self) -> Judgments:
        """The judgments; a header and lines of query id, passage id and score, or TREC's form."""
        return read_qrels(self.qrels_file)
