"""What commands of studies print: one document, as JSON, Markdown, tables or a page of them."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipeline.core.display import visible
from pipeline.core.table import Table, html_table
from pipeline.storage.whole_files import write_whole
from pipeline.terminal import print_each, print_json, show

if TYPE_CHECKING:
    from pipeline.core.records import Facts, JsonObject


class Document(Protocol):
    """What prints as JSON or as tables."""

    def json(self) -> JsonObject | list[Facts]:
        """The JSON document; several may be a list."""

    def tables(self) -> list[Table]:
        """The tables, the most important first."""


def print_as(
    document: Document, as_json: bool, as_markdown: bool = False, html: Path | None = None, title: str = ""
) -> None:
    """Print JSON, Markdown or tables, and write the tables as an HTML page of their own, if one is named."""
    from pipeline.report.renderings import markdown

    if as_json:
        content = document.json()
        print_each(content if isinstance(content, list) else [content])
    elif as_markdown:
        print(markdown(document.tables()), end="")
    else:
        show(*document.tables())
    if html:
        head = '<!doctype html><html lang="en"><meta charset="utf-8">'
        head += f'<meta name="generator" content="benchmarco"><title>{escape(title)}</title>'
        style = "<style>body{font-family:sans-serif;margin:2em}td,th{padding:.2em .6em}</style>"
        body = "".join(map(html_table, document.tables()))
        write_whole(html, visible(f"{head}{style}<body>{body}</body></html>\n").encode())
        print(f"page written to {html}", file=sys.stderr)


def print_written(output: Path, facts: Facts, as_json: bool, *parts: str | Table, hint: str = "") -> None:
    """Print facts about a file or folder that was written as JSON, or in sentences and tables."""
    if as_json:
        print_json({**facts, "output": str(output)})
        return
    for part in parts:
        if isinstance(part, Table):
            show(part)
        elif part:
            print(part)
    print(f"written to {output}{hint}", file=sys.stderr)
