"""How is a figure written, and how does a result look in a notebook and in a Python prompt?

A figure is written alike wherever it is shown: here is how. One that nobody measured is written as nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class View:
    """A table to look at.

    Attributes:
        title: What it is of.
        header: A name per column.
        rows: A text per column; the first column names the row, all others are numbers.
        notes: What to know beside it, a sentence each.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def text(self) -> str:
        """Columns aligned by spaces."""
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        first, *others = widths
        table = [
            "  ".join([row[0].ljust(first), *(c.rjust(w) for c, w in zip(row[1:], others, strict=True))])
            for row in lines
        ]
        return "\n".join([self.title, *table, *self.notes])

    def html(self) -> str:
        """An HTML table in the colours of the page that it is put on."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.header)
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(row[0])}</th>'
            + "".join(f'<td style="text-align:right">{escape(cell)}</td>' for cell in row[1:])
            + "</tr>"
            for row in self.rows
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        caption = f'<caption style="text-align:left"><b>{escape(self.title)}</b></caption>'
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


class Displayed:
    """Looks like its `views`: a line in a prompt, plain text when printed, HTML in a notebook."""

    def views(self) -> list[View]:
        """What there is to see, the most important first."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.views()[0].title}>"

    def __str__(self) -> str:
        return "\n\n".join(view.text() for view in self.views())

    def _repr_html_(self) -> str:
        return "".join(view.html() for view in self.views())


def rounded(value: float | None) -> str:
    """A measure, or a share: 0.6427."""
    return "" if value is None else f"{value:.4f}"


def signed(value: float) -> str:
    """A difference of measures, with its sign: +0.0021, -0.0104; what rounds to 0 has none."""
    text = f"{value:+.4f}"
    return text[1:] if float(text) == 0 else text


def interval(low: float, high: float) -> str:
    """A 95% interval."""
    return f"{rounded(low)} to {rounded(high)}"


def signed_interval(low: float, high: float) -> str:
    """A 95% interval of a difference."""
    return f"{signed(low)} to {signed(high)}"


def p(value: float) -> str:
    """A p-value: 0.0312, <0.0001."""
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def rate(value: float | None) -> str:
    """Items per second: 1,234, or 0.52 where it is small."""
    return "" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def size(count: float | None) -> str:
    """Bytes, in the unit that leaves at most three digits before the point: 22.4 MB."""
    if count is None:
        return ""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def counted(count: int, one: str, many: str = "") -> str:
    """How many of something: 1 query, 1,234 queries; without `many`, an s makes it."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def cut(text: str, length: int) -> str:
    """A text of at most so many characters, which shows that it goes on."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
