"""How does a stage say how far it is? By a bar that the caller hands it; stages never print."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Bar(Protocol):
    """What a stage needs of a progress bar; `tqdm.tqdm` is one."""

    def update(self, n: int = 1) -> bool | None:
        """Count `n` more items as done."""
        ...


class _Silent:
    def update(self, n: int = 1) -> None:
        return None


Progress = Callable[[str, int | None, str], AbstractContextManager[Bar]]
"""Opens a bar: what is done, how many items in all (None if unknown), and what an item is called."""


def silent(label: str, total: int | None, unit: str) -> AbstractContextManager[Bar]:
    """A bar that shows nothing."""
    return nullcontext(_Silent())


def numbered(progress: Progress, number: int, total: int) -> Progress:
    """Bars that say which of several benchmarks they are of."""
    return lambda label, items, unit: progress(f"[{number}/{total}] {label}", items, unit)
