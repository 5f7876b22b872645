"""What commands of studies print: one document, as JSON, Markdown or tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pipeline.core.errors import InputError
from pipeline.terminal import print_json, show

if TYPE_CHECKING:
    from pipeline.core.records import JsonObject
    from pipeline.core.table import Table


def refuse_both(as_json: bool, as_markdown: bool) -> None:
    """Refuse two output formats at once."""
    if as_json and as_markdown:
        raise InputError("--json and --markdown are both given", fix="leave one out")


class Document(Protocol):
    """What prints as one JSON document or as tables."""

    def json(self) -> JsonObject:
        """The JSON document."""

    def tables(self) -> list[Table]:
        """The tables, the most important first."""


def print_as(document: Document, as_json: bool, as_markdown: bool) -> None:
    """Print JSON, Markdown or tables."""
    from pipeline.report.renderings import markdown

    if as_json:
        print_json(document.json())
    elif as_markdown:
        print(markdown(document.tables()), end="")
    else:
        show(*document.tables())
