"""BRIGHT's layout, as in `xlangai/BRIGHT` and `mteb/BRIGHT`: a table for each part, a split for each domain.

`documents` and `long_documents` have columns `id` and `content`; `examples`, and each table of rewritten
questions such as `gpt4_reason`, have `id`, `query`, and lists of document ids: `gold_ids`, `gold_ids_long`
and `excluded_ids`, where "N/A" stands for none.

A question's excluded documents, such as the page that it was taken from, must not count. They get the grade
-1, and `data.ignored: negative_grades`, the default here, removes them from its ranking before it is scored,
as FlagEmbedding's evaluation of BRIGHT does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.config.data import BrightSettings
from pipeline.data.sources.listed import join_listed
from pipeline.data.sources.protocol import Source
from pipeline.data.sources.repos import Repo
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments
from pipeline.formats.records import Batch

if TYPE_CHECKING:
    import pyarrow as pa

EXCLUDED = -1  # the grade of an excluded document


def open_source(settings: BrightSettings) -> Source:
    """Open the collection that settings name."""
    return Bright(
        Repo.open(settings.path, settings.revision),
        settings.domain,
        settings.split,
        long=settings.documents == "long",
    )


@dataclass(frozen=True)
class Bright:
    """One domain of BRIGHT.

    Attributes:
        repo: The dataset.
        domain: The split of each table.
        examples: The table of questions.
        long: Whether whole documents are searched.
    """

    repo: Repo
    domain: str
    examples: str
    long: bool

    def identity(self) -> dict[str, dict[str, Any]]:
        """The commit, or the bytes of local files."""
        layout = {"layout": "bright"}
        questions = self.repo.identity(self.examples, self.domain) | layout
        corpus = self.repo.identity(self._documents, self.domain) | layout
        return {"corpus": corpus, "queries": questions, "qrels": questions | {"long": self.long}}

    def size(self) -> tuple[int | None, str]:
        """Bytes of the files of documents."""
        return sum(path.stat().st_size for path in self.repo.files(self._documents, self.domain)), "B"

    def passages(self) -> Iterator[Batch]:
        """The documents."""
        for rows in tables.read_rows(self.repo.files(self._documents, self.domain), ["id", "content"]):
            yield rows.batch(_without_spaces(rows.strings("id")), rows.strings("content"))

    def queries(self) -> Iterator[Batch]:
        """The questions."""
        for rows in self._rows("query"):
            yield rows.batch(rows.strings("id", integers=True), rows.strings("query"))

    def judgments(self) -> Judgments:
        """Gold documents are judged 1, excluded ones -1; of whole documents, none are excluded."""
        columns = [("gold_ids_long", 1)] if self.long else [("gold_ids", 1), ("excluded_ids", EXCLUDED)]
        rows = self._rows(*(name for name, _ in columns))
        return join_listed(rows, "id", columns, none="N/A", rename=_without_spaces)

    @property
    def _documents(self) -> str:
        return "long_documents" if self.long else "documents"

    def _rows(self, *columns: str) -> Iterator[tables.Rows]:
        return tables.read_rows(self.repo.files(self.examples, self.domain), ["id", *columns])


def _without_spaces(ids: pa.Array) -> pa.Array:
    """Document ids, which are file names, with `%20` for a space: TREC files allow none."""
    import pyarrow.compute as pc

    return pc.replace_substring(ids, " ", "%20")
