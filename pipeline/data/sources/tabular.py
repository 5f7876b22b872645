"""A collection in tables of any column names: CSV, TSV, Parquet or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.data import TableSettings
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.data.sources.folders import hashed
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments, no_judgments
from pipeline.formats.texts import Batch


@dataclass(frozen=True)
class TableSource:
    """A file of passages, one of queries and perhaps one of judgments."""

    settings: TableSettings

    def identity(self) -> dict[str, JsonObject]:
        """The files' bytes, and the columns that are read."""
        each = self.settings
        judged = [each.judged_query, each.judged_passage, each.grade]
        return {
            "corpus": _identity(each.corpus_file, [each.corpus_id, each.corpus_text, each.corpus_title]),
            "queries": _identity(each.queries_file, [each.query_id, each.query_text]),
            "qrels": _identity(each.judgments_file, judged) if each.judgments_file else {"layout": "table"},
        }

    def size(self) -> tuple[int | None, str]:
        """Bytes of the file of passages."""
        return Path(self.settings.corpus_file).stat().st_size, "B"

    def passages(self) -> Iterator[Batch]:
        """The rows of the file of passages."""
        each = self.settings
        return _texts(each.corpus_file, each.corpus_id, each.corpus_text, each.corpus_title)

    def queries(self) -> Iterator[Batch]:
        """The rows of the file of queries."""
        return _texts(self.settings.queries_file, self.settings.query_id, self.settings.query_text)

    def judgments(self) -> Judgments:
        """The rows of the file of judgments."""
        each = self.settings
        if not each.judgments_file:
            return no_judgments()
        return tables.read_judgments(
            [Path(each.judgments_file)], each.judged_query, each.judged_passage, each.grade
        )


def open_table(settings: TableSettings) -> TableSource:
    """Open the tables that settings name; refused if a file is missing."""
    for name in ("corpus_file", "queries_file", "judgments_file"):
        path = getattr(settings, name)
        if path and not Path(path).is_file():
            found = f"data.{name} {path}: {'is a folder' if Path(path).is_dir() else 'no such file'}"
            raise InputError(found, allowed="a CSV, TSV, Parquet or JSON lines file", fix="check the path")
    return TableSource(settings)


def _identity(file: str, columns: list[str | None]) -> JsonObject:
    # the ending decides how the bytes are read
    return {"layout": "table", "form": tables.form_of(Path(file)), "columns": columns, **hashed(Path(file))}


def _texts(file: str, ids: str, text: str, title: str | None = None) -> Iterator[Batch]:
    for rows in tables.read_rows([Path(file)], [name for name in (ids, text, title) if name]):
        titles = rows.strings(title, nulls=True) if title else None
        yield rows.batch(rows.strings(ids, integers=True), rows.strings(text), titles)
