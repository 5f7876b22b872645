"""Belebele's layout, `mteb/belebele`, joined as MTEB's BelebeleRetrieval does: a table for each language.

A row holds a question, the passage that answers it (`flores_passage`) and where that is from (`link`), which
is the same in all languages. So questions of one language can be asked of the passages of another.

Passages are numbered C0, C1, … by their link, and questions Q0, Q1, … by their text, as they first appear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.config.data import BelebeleSettings
from pipeline.data.sources.protocol import Source
from pipeline.data.sources.repos import Repo
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments, make_judgments
from pipeline.formats.records import Batch


def open_source(settings: BelebeleSettings) -> Source:
    """Open the collection that settings name."""
    passages = settings.corpus_language or settings.language
    return Belebele(Repo.open(settings.path, settings.revision), passages, settings.language, settings.split)


@dataclass(frozen=True)
class Belebele:
    """Questions of one language and passages of another, or the same."""

    repo: Repo
    corpus_language: str
    language: str
    split: str

    def identity(self) -> dict[str, dict[str, Any]]:
        """The commit, or the bytes of local files."""
        corpus = self.repo.identity(self.corpus_language, self.split) | {"layout": "belebele"}
        questions = self.repo.identity(self.language, self.split) | {"layout": "belebele"}
        return {"corpus": corpus, "queries": questions, "qrels": {"questions": questions, "passages": corpus}}

    def size(self) -> tuple[int | None, str]:
        """Bytes of the files of the passages' language."""
        files = self.repo.files(self.corpus_language, self.split)
        return sum(path.stat().st_size for path in files), "B"

    def passages(self) -> Iterator[Batch]:
        """Each passage once."""
        return self._once(self.corpus_language, "link", "flores_passage", "C")

    def queries(self) -> Iterator[Batch]:
        """Each question once."""
        return self._once(self.language, "question", "question", "Q")

    def judgments(self) -> Judgments:
        """A passage is relevant to the questions about it."""
        import pyarrow as pa

        passages = self._numbers(self.corpus_language, "link")
        questions = self._numbers(self.language, "question")
        pairs = [
            (f"Q{questions[question]}", f"C{passages[link]}")
            for rows in self._rows(self.language, "question", "link")
            for question, link in zip(*(rows.strings(name).to_pylist() for name in rows.columns), strict=True)
            if link in passages
        ]
        queries, found = zip(*pairs, strict=True) if pairs else ((), ())
        ids = pa.array(queries, pa.string()), pa.array(found, pa.string())
        ones, numbers = np.ones(len(pairs)), np.arange(len(pairs))
        return make_judgments(*ids, ones, f"{self.repo.name}, {self.language}", "row", numbers)

    def _once(self, language: str, key: str, text: str, prefix: str) -> Iterator[Batch]:
        """The first row of each value of a column; its id is the number of that value."""
        import pyarrow as pa

        seen: set[str] = set()
        for rows in self._rows(language, key, text):
            start, first = len(seen), []
            for row, value in enumerate(rows.strings(key).to_pylist()):
                if value not in seen:
                    seen.add(value)
                    first.append(row)
            ids = pa.array([f"{prefix}{number}" for number in range(start, len(seen))], pa.string())
            chosen = rows.batch(rows.strings(text), rows.strings(text)).take(np.array(first, np.int64))
            yield replace(chosen, ids=ids, advance=rows.advance)

    def _numbers(self, language: str, key: str) -> dict[str, int]:
        """The number of each value of a column, in the order of first appearance."""
        values: dict[str, int] = {}
        for rows in self._rows(language, key):
            for value in rows.strings(key).to_pylist():
                values.setdefault(value, len(values))
        return values

    def _rows(self, language: str, *columns: str) -> Iterator[tables.Rows]:
        return tables.read_rows(self.repo.files(language, self.split), list(dict.fromkeys(columns)))
