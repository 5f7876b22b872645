"""What commands of studies print: one document, as JSON, Markdown, tables or a page of them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Protocol

from pipeline.core.errors import InputError, visible
from pipeline.core.table import html_table
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


def html_page(title: str, tables: Iterable[Table]) -> str:
    """Tables as an HTML page of their own."""
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="generator" content="benchmarco">'
    head += f"<title>{escape(title)}</title>"
    style = "<style>body{font-family:sans-serif;margin:2em}td,th{padding:.2em .6em}</style>"
    return visible(f"{head}{style}<body>{''.join(map(html_table, tables))}</body></html>\n")
