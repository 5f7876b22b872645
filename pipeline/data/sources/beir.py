"""BEIR folders: `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`, plain or gzip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pipeline.config.data import DataSettings, LocatedSettings
from pipeline.config.settings import setting
from pipeline.data.sources.beir_hub import BeirHub
from pipeline.data.sources.folders import FolderSource
from pipeline.data.sources.protocol import Source
from pipeline.formats import jsonl
from pipeline.formats.judgments import Judgments
from pipeline.formats.qrels import read_qrels
from pipeline.formats.records import Batch

SAMPLE = Path(__file__).parents[1] / "sample"


class SampleSettings(DataSettings):
    """The collection that comes with this package."""

    source: Literal["sample"] = DataSettings.narrowed("source", "sample")
    split: str = LocatedSettings.narrowed("split", "test")

    def open(self) -> Source:
        """See `DataSettings.open`."""
        return BeirFolder.of_split(str(SAMPLE), self.split)


class BeirSettings(LocatedSettings):
    """BEIR's layout: its own files, or tables as on the hub."""

    source: Literal["beir"] = DataSettings.narrowed("source", "beir")
    revision: str | None = setting(
        None, "on the hub: branch, tag or commit of the dataset", shapes="data", keyed=False
    )
    subset: str | None = setting(
        None,
        "on the hub: the prefix of the tables' names, as in 'sw-corpus'; a language, for example",
        shapes="data",
        keyed=False,
    )

    def open(self) -> Source:
        """BEIR's own files where the folder has them, else its layout on the hub."""
        folder = Path(self.path)
        on_hub = not folder.is_absolute()
        has_own = any((folder / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz"))
        if on_hub or (folder.is_dir() and not has_own and any(folder.rglob("*corpus*"))):
            return BeirHub.open(self.path, self.revision, self.split, self.subset)
        return BeirFolder.of_split(self.path, self.split)


class BeirFolder(FolderSource):
    """A collection in BEIR's layout."""

    layout = "beir"
    expected = "BEIR's layout: corpus.jsonl, queries.jsonl and qrels/<split>.tsv, each plain or .gz"
    judgments_files = "qrels/*.tsv"

    @classmethod
    def of_split(cls, path: str, split: str) -> BeirFolder:
        """The files in a folder, with the judgments of one split."""
        return cls.find(path, ["corpus.jsonl"], ["queries.jsonl"], [f"qrels/{split}.tsv"])

    def passages(self) -> Iterator[Batch]:
        """The corpus; a line is `{"_id": ..., "title": ..., "text": ...}`, the title optional."""
        return jsonl.read_texts(self.corpus_file, "_id", "title")

    def queries(self) -> Iterator[Batch]:
        """The queries; a line is `{"_id": ..., "text": ...}`."""
        return jsonl.read_texts(self.queries_file, "_id")

    def judgments(self) -> Judgments:
        """The judgments; a header and lines of query id, passage id and score, or TREC's form."""
        return read_qrels(self.qrels_file)
