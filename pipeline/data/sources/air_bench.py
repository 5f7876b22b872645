"""AIR-Bench's layout: `AIR-Bench/qa_wiki_en` with texts, `AIR-Bench/qrels-qa_wiki_en-dev` with judgments.

A table of each is named by the version; its splits are `corpus_DATASET` and `queries_DATASET_SPLIT` with
columns `id` and `text`, and `qrels_DATASET_SPLIT` with `qid`, `docid` and `relevance`. The judgments of the
test sets, in a repository without `-dev`, are not public.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.config.data import AirBenchSettings
from pipeline.data.sources.beir_hub import read_texts
from pipeline.data.sources.protocol import Source
from pipeline.data.sources.repos import Repo
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments
from pipeline.formats.records import Batch

VERSION = "AIR-Bench_24.05"  # the name of each table


def open_source(settings: AirBenchSettings) -> Source:
    """Open the collection that settings name."""
    above, slash, name = settings.path.rstrip("/").rpartition("/")
    judged = f"{above}{slash}qrels-{name}{'-dev' if settings.split == 'dev' else ''}"
    return AirBench(
        Repo.open(settings.path, settings.revision),
        Repo.open(judged, None),
        settings.dataset.replace("-", "_"),
        settings.split,
    )


@dataclass(frozen=True)
class AirBench:
    """One dataset of AIR-Bench.

    Attributes:
        texts: The repository of corpus and queries.
        qrels: The repository of the judgments.
        dataset: As in the names of splits.
        split: dev or test.
    """

    texts: Repo
    qrels: Repo
    dataset: str
    split: str

    def identity(self) -> dict[str, dict[str, Any]]:
        """The commits, or the bytes of local files."""
        return {
            "corpus": self.texts.identity(VERSION, f"corpus_{self.dataset}"),
            "queries": self.texts.identity(VERSION, self._split("queries")),
            "qrels": self.qrels.identity(VERSION, self._split("qrels")),
        }

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus' files."""
        files = self.texts.files(VERSION, f"corpus_{self.dataset}")
        return sum(path.stat().st_size for path in files), "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus."""
        return read_texts(self.texts.files(VERSION, f"corpus_{self.dataset}"))

    def queries(self) -> Iterator[Batch]:
        """The queries of the split."""
        return read_texts(self.texts.files(VERSION, self._split("queries")))

    def judgments(self) -> Judgments:
        """The judgments of the split."""
        files = self.qrels.files(VERSION, self._split("qrels"))
        return tables.read_judgments(files, "qid", "docid", "relevance")

    def _split(self, part: str) -> str:
        return f"{part}_{self.dataset}_{self.split}"
