"""How are MS MARCO's own files read? `collection.tsv`, `queries.<split>.tsv` and `qrels.<split>.tsv`.

A line of the collection is `pid, text`, of the queries `qid, text`, of the judgments `qid, 0, pid, grade`.
Where there is no collection but `top1000.<split>.tsv` (lines of `qid, pid, query, passage`), the passages in
it are the corpus, each once, in order of appearance; and its queries are the queries if they have no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.config.data import DataSettings, LocatedSettings
from pipeline.config.settings import LocalPath
from pipeline.formats import tsv
from pipeline.formats.blocks import collection_folder, find, hashed
from pipeline.formats.source import Batch, Judgments, Source

LAYOUT = (
    "MS MARCO's files: collection.tsv, queries.<split>.tsv and qrels.<split>.tsv, each plain or .gz, "
    "such as queries.dev.small.tsv for split dev.small; or top1000.<split>.tsv for the first two"
)
TEXTS, TOP, QRELS = "id text", "query-id passage-id query passage", "query-id 0 passage-id grade"


class MsMarcoSettings(LocatedSettings):
    """MS MARCO's own files."""

    source: Literal["msmarco"] = DataSettings.narrowed("source", "msmarco")
    path: LocalPath = LocatedSettings.narrowed("path", doc="folder of the collection")

    def open(self) -> Source:
        """See `DataSettings.open`."""
        return MsMarcoFolder.open(self.path, self.split)


@dataclass(frozen=True)
class MsMarcoFolder:
    """MS MARCO's passage ranking files.

    Attributes:
        corpus_file: The collection, or the top 1000.
        queries_file: The queries, or the top 1000.
        qrels_file: The judgments.
    """

    corpus_file: Path
    queries_file: Path
    qrels_file: Path

    @staticmethod
    def open(path: str | None, split: str) -> MsMarcoFolder:
        """Find the files.

        Raises:
            InputError: The folder or one of its files is not there.
        """
        folder = collection_folder(path, LAYOUT)
        top = [f"top1000.{split}.tsv", f"top1000.{split}"]
        return MsMarcoFolder(
            find(folder, ["collection.tsv", *top], LAYOUT),
            find(folder, [f"queries.{split}.tsv", *top], LAYOUT),
            find(folder, [f"qrels.{split}.tsv"], LAYOUT),
        )

    def identity(self) -> dict[str, dict[str, Any]]:
        """The files' bytes."""
        return {
            "corpus": {"layout": "msmarco", "top1000": _is_top(self.corpus_file), **hashed(self.corpus_file)},
            "queries": {
                "layout": "msmarco",
                "top1000": _is_top(self.queries_file),
                **hashed(self.queries_file),
            },
            "qrels": {"layout": "msmarco", **hashed(self.qrels_file)},
        }

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus file."""
        return self.corpus_file.stat().st_size, "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus."""
        if _is_top(self.corpus_file):
            return tsv.read_repeated(self.corpus_file, TOP, id_column=1, text_column=3)
        return tsv.read_texts(self.corpus_file, TEXTS, id_column=0, text_column=1)

    def queries(self) -> Iterator[Batch]:
        """The queries."""
        if _is_top(self.queries_file):
            return tsv.read_repeated(self.queries_file, TOP, id_column=0, text_column=2)
        return tsv.read_texts(self.queries_file, TEXTS, id_column=0, text_column=1)

    def judgments(self) -> Judgments:
        """The judgments."""
        return tsv.read_judgments(self.qrels_file, QRELS, header=False)


def _is_top(path: Path) -> bool:
    return path.name.startswith("top1000")
