"""MIRACL's own layout: passages in `miracl/miracl-corpus`, questions and judgments in `miracl/miracl`.

Passages are JSON lines of `docid`, `title` and `text`, questions TSV, judgments in TREC's form:

    miracl-corpus/miracl-corpus-v1.0-sw/docs-0.jsonl.gz
    miracl/miracl-v1.0-sw/topics/topics.miracl-v1.0-sw-dev.tsv
    miracl/miracl-v1.0-sw/qrels/qrels.miracl-v1.0-sw-dev.tsv

The suite `miracl` reads MTEB's copy, which is in BEIR's layout and pinned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.config.data import MiraclSettings
from pipeline.data.sources.protocol import Source
from pipeline.data.sources.repos import Repo
from pipeline.formats import tables, tsv
from pipeline.formats.judgments import Judgments
from pipeline.formats.qrels import read_qrels
from pipeline.formats.records import Batch


def open_source(settings: MiraclSettings) -> Source:
    """Open the collection that settings name."""
    texts = Repo.open(settings.corpus_path, settings.corpus_revision)
    return Miracl(texts, Repo.open(settings.path, settings.revision), settings.language, settings.split)


@dataclass(frozen=True)
class Miracl:
    """One language of MIRACL: the repositories of passages and of questions."""

    corpus: Repo
    topics: Repo
    language: str
    split: str

    def identity(self) -> dict[str, dict[str, Any]]:
        """The commits, or the bytes of local files."""
        parts = {
            "corpus": self.corpus.identity_of(self._corpus),
            "queries": self.topics.identity_of(self._part("topics")),
            "qrels": self.topics.identity_of(self._part("qrels")),
        }
        return {part: known | {"layout": "miracl"} for part, known in parts.items()}

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus' files."""
        return sum(path.stat().st_size for path in self.corpus.matching(self._corpus)), "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus."""
        for rows in tables.read_rows(self.corpus.matching(self._corpus), ["docid", "text"], ["title"]):
            titles = rows.strings("title", nulls=True) if "title" in rows.columns else None
            yield rows.batch(rows.strings("docid"), rows.strings("text"), titles)

    def queries(self) -> Iterator[Batch]:
        """The questions of the split."""
        for path in self.topics.matching(self._part("topics")):
            yield from tsv.read_texts(path, "id text", id_column=0, text_column=1)

    def judgments(self) -> Judgments:
        """The judgments of the split."""
        return read_qrels(self.topics.matching(self._part("qrels"))[0])

    @property
    def _corpus(self) -> str:
        return f"miracl-corpus-v1.0-{self.language}/*.jsonl.gz"

    def _part(self, part: str) -> str:
        return f"miracl-v1.0-{self.language}/{part}/{part}.miracl-v1.0-{self.language}-{self.split}.tsv"
