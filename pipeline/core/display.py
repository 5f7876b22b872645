"""Figures as text, one form of each, and progress bars: a stage updates its caller's, and never prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

BYTES = "bytes/passage"
"""The column of what a passage takes in an index."""
Number = float | tuple[float | None, float | None] | None
"""A number, or the ends of an interval; None where there is none."""


def figure(value: Number, form: str = ".4f") -> str:
    """A number as text, or an interval: 0.6427, 0.6012 to 0.6842.

    It is written in a format, of which "+.4f" gives no sign to what rounds to 0, or in the form of p-values,
    "p"; of items per second, "rate": 1,234 or 0.52; of sizes, "bytes", with a unit that leaves at most three
    digits before the point: 22.4 MB; or of times that are not exact, "time": 48 s, 12 min, 3.4 h, 2.1 days.
    """
    if isinstance(value, tuple):
        return "" if None in value else " to ".join(figure(each, form) for each in value)
    if value is None:
        return ""
    if form == "p":
        return "<0.0001" if value < 0.0001 else f"{value:.4f}"
    if form == "rate":
        return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
    if form == "bytes":
        return _size(value)
    if form == "time":
        return _duration(value)
    text = f"{value:{form}}"
    return text[1:] if form.startswith("+") and float(text) == 0 else text


def _size(count: float) -> str:
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"


def interval(
    low: float | None, high: float | None, fragile: bool, form: str = ".4f", ends: str = "{} to {}"
) -> str:
    """The ends of an interval, with "~" where it is fragile: 0.6012 to 0.6842~; nothing without ends."""
    known = low is not None and high is not None
    return ends.format(figure(low, form), figure(high, form)) + "~" * fragile if known else ""


AFTER_MEAN = " [{}, {}]"
"""The ends of an interval that stands after its mean."""
FRAGILE = "~: one unseen query that loses everything would move the mean by more than the interval reaches."
"""What the mark of an interval means."""


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun: 1 query, 1,234 queries. Without `many`, the plural is `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


MOST_NAMED = 6
"""Names in one enumeration; of more there is only the number."""


def enumerated(names: Sequence[str]) -> str:
    """Names joined by commas and "and", or their number if there are many."""
    if len(names) > MOST_NAMED:
        return f"{len(names)} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


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


NO_BAR: Bar = _Silent()
Progress = Callable[[str, int | None, str], AbstractContextManager[Bar]]
"""(label, number of items, or None if it is not known, unit) -> a bar, open in a `with` block."""


def silent(label: str, total: int | None, unit: str) -> AbstractContextManager[Bar]:
    """A bar that shows nothing."""
    return nullcontext(NO_BAR)


def numbered(progress: Progress, number: int, total: int) -> Progress:
    """The same progress with labels that number one of several benchmarks: `[2/5] search`."""
    return lambda label, items, unit: progress(f"[{number}/{total}] {label}", items, unit)


def visible(text: str) -> str:
    """A text with control characters escaped as in JSON; new lines and tabs are kept."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters of terminals, and those that change the direction of text after them."""


def as_text(value: object) -> str:
    """A value as it is shown: JSON, without quotes around a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
