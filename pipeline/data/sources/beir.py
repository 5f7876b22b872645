"""BEIR folders: `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`, plain or gzip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.config.data import BeirSettings, SampleSettings
from pipeline.data.sources.beir_hub import BeirHub
from pipeline.data.sources.folders import FolderSource
from pipeline.data.sources.protocol import Source
from pipeline.formats import jsonl
from pipeline.formats.judgments import Judgments
from pipeline.formats.qrels import read_qrels
from pipeline.formats.records import Batch

SAMPLE = Path(__file__).parents[1] / "sample"


def open_sample(settings: SampleSettings) -> Source:
    """Open the sample that comes with this package."""
    return BeirFolder.of_split(str(SAMPLE), settings.split)


def open_beir(settings: BeirSettings) -> Source:
    """Open BEIR's own files where the folder has them, else its layout on the hub."""
    folder = Path(settings.path)
    on_hub = not folder.is_absolute()
    has_own = any((folder / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz"))
    if on_hub or (folder.is_dir() and not has_own and any(folder.rglob("*corpus*"))):
        return BeirHub.open(settings.path, settings.revision, settings.split, settings.subset)
    return BeirFolder.of_split(settings.path, settings.split)


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
