"""Figures as text, and progress bars: a stage updates the bar that its caller gives it, and never prints.

A measure, an interval or a size is written in one way wherever it is shown. A figure that was not
measured is an empty text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


def rounded(value: float | None) -> str:
    """A measure, or a share: 0.6427."""
    return "" if value is None else f"{value:.4f}"


def signed(value: float) -> str:
    """A difference of measures, with its sign: +0.0021, -0.0104; what rounds to 0 has none."""
    text = f"{value:+.4f}"
    return text[1:] if float(text) == 0 else text


def interval(low: float | None, high: float | None) -> str:
    """A 95% interval."""
    return "" if low is None or high is None else f"{rounded(low)} to {rounded(high)}"


def signed_interval(low: float | None, high: float | None) -> str:
    """A 95% interval of a difference."""
    return "" if low is None or high is None else f"{signed(low)} to {signed(high)}"


def p(value: float) -> str:
    """A p-value: 0.0312, <0.0001."""
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def decimal(value: float | None, digits: int) -> str:
    """A number with so many digits after the point: 1,234.5."""
    return "" if value is None else f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    """Items per second: 1,234, or 0.52 where it is small."""
    return "" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def size(count: float | None) -> str:
    """Bytes, in the unit that leaves at most three digits before the point: 22.4 MB."""
    if count is None:
        return ""
    value = float(count)
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """A time that is not exact: 48 s, 12 min, 3.4 h, 2.1 days."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun: 1 query, 1,234 queries. Without `many`, the plural is `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def cut(text: str, length: int) -> str:
    """A text shortened to `length` characters, with an ellipsis where something is left out."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


class Bar(Protocol):
    """A progress bar, such as `tqdm.tqdm`."""

    def update(self, n: int = 1) -> bool | None:
        """Count `n` more items as done."""
        ...


class _Silent:
    def update(self, n: int = 1) -> None:
        return None


Progress = Callable[[str, int | None, str], AbstractContextManager[Bar]]
"""(label, number of items, or None if it is not known, unit) -> a bar, open in a `with` block."""


def silent(label: str, total: int | None, unit: str) -> AbstractContextManager[Bar]:
    """A bar that shows nothing."""
    return nullcontext(_Silent())


def numbered(progress: Progress, number: int, total: int) -> Progress:
    """The same progress with labels that number one of several benchmarks: `[2/5] search`."""
    return lambda label, items, unit: progress(f"[{number}/{total}] {label}", items, unit)
