"""Source `msmarco`: MS MARCO's own `collection.tsv`, `queries.<split>.tsv` and `qrels.<split>.tsv`.

A line of the collection is `pid, text`, of the queries `qid, text`, of the judgments `qid, 0, pid, grade`.
Where there is no collection but `top1000.<split>.tsv` (lines of `qid, pid, query, passage`), the passages in
it are the corpus, each once, in order of appearance; and its queries are the queries if they have no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pipeline.config.data import DataSettings, LocatedSettings
from pipeline.config.settings import LocalPath
from pipeline.data.sources.folder import FolderSource
from pipeline.formats import tsv
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
        split = self.split
        top = [f"top1000.{split}.tsv", f"top1000.{split}"]
        names = (["collection.tsv", *top], [f"queries.{split}.tsv", *top], [f"qrels.{split}.tsv"])
        return MsMarcoFolder.find(self.path, names, LAYOUT)


class MsMarcoFolder(FolderSource):
    """MS MARCO's passage ranking files; the top 1000 may be both corpus and queries."""

    layout = "msmarco"

    def identity(self) -> dict[str, dict[str, Any]]:
        """The files' bytes, and how they are read."""
        parts = super().identity()
        parts["corpus"]["top1000"] = _is_top(self.corpus_file)
        parts["queries"]["top1000"] = _is_top(self.queries_file)
        return parts

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
