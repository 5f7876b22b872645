"""What the benchmarks share: tasks timed in turn, round after round, and a table of rates and ratios.

Tasks take turns, so that a machine that becomes slower meets all of them alike, and a ratio is taken within a
round. The first round warms up and does not count.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.core import machine
from pipeline.core.kernels import loaded_kernels


@dataclass
class Timed:
    """The seconds of a task, a number a round, and what it returned last."""

    seconds: list[float] = field(default_factory=list)
    result: Any = None

    @property
    def median(self) -> float:
        """Of the seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> str:
        """The least and the most seconds."""
        return f"{min(self.seconds):.3g} to {max(self.seconds):.3g}"


def check_kernels() -> str:
    """The matrix kernels of the loaded libraries, also on stderr; stops where OpenBLAS has the ones of 2004.

    Faiss has the kernels that suit the processor if it is imported from `pipeline.search.faiss_library`.
    """
    used = loaded_kernels()
    said = "; ".join(map(str, used))
    print(f"matrix kernels: {said}", file=sys.stderr)
    if old := [each.library for each in used if each.core == "Prescott"]:
        from pipeline.search.faiss_library import SUITED

        sys.exit(
            f"{' and '.join(old)} would be slower than it can be on this processor: set OPENBLAS_CORETYPE to "
            f"{SUITED}, or take a newer BLAS"
        )
    return said


def in_turn(tasks: Mapping[str, Callable[[], Any]], rounds: int, warm: int = 1) -> dict[str, Timed]:
    """Do every task in each round, one after the other; `warm` rounds before are not counted.

    After these, all libraries are loaded, and their kernels are checked.
    """
    timed = {name: Timed() for name in tasks}
    for number in range(rounds + warm):
        if number == warm:
            check_kernels()
        for name, task in tasks.items():
            timed[name].result = None
            gc.collect()
            started = time.perf_counter()
            timed[name].result = task()
            if number >= warm:
                timed[name].seconds.append(time.perf_counter() - started)
        print(f"round {number + 1} of {rounds + warm} done", file=sys.stderr)
    return timed


def ratios(timed: Timed, base: Timed) -> list[float]:
    """How many times faster than `base` a task was in each round, in ascending order."""
    return sorted(theirs / own for own, theirs in zip(timed.seconds, base.seconds, strict=True))


def show(
    title: str,
    timed: Mapping[str, Timed],
    items: float,
    unit: str,
    base: str,
    columns: Mapping[str, Callable[[str], str]] | None = None,
    order: Sequence[str] = (),
) -> None:
    """Print a row for each task: its rate, and how many times faster than the task `base` it is.

    Args:
        title: What was measured; the processor is named behind it.
        timed: From `in_turn`.
        items: How many a task computes.
        unit: What they are, such as "passages".
        base: The peer that ratios are taken to.
        columns: Further columns: the heading, and the text for a task's name.
        order: The tasks that are shown; all by default.
    """
    columns = columns or {}
    print(f"{title}; {machine.threads()} threads of {machine.hardware()['cpu']}")
    heads = [f"{unit}/s", f"x {base}", "range", *columns]
    widths = [max(len(head) + 2, 14) for head in heads]
    print(f"{'':<26}" + "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for name in order or timed:
        one = timed[name]
        found = ratios(one, timed[base])
        cells = [
            f"{items / one.median:,.1f}", f"{statistics.median(found):.2f}",
            f"{found[0]:.2f} to {found[-1]:.2f}", *(text(name) for text in columns.values()),
        ]  # fmt: skip
        print(f"{name:<26}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
