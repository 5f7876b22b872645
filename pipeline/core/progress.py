"""Progress bars: a stage updates the bar that its caller gives it, and never prints."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


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
