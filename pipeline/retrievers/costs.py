"""What stages will cost: time, memory and disk, for a number of passages and before anything is made.

A stage of a plan says it in its `Stage.cost`. Speeds are those that were measured on this machine, of an
artifact of the same model or in a probe; sizes follow from what is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.core import machine
from pipeline.core.records import Facts

BASE_MB = 300  # of the interpreter and its libraries, without a model
HELD_BYTES = 100  # that a process holds for each passage: its hash, its place in a shard, its id
DISK_RATE = 5e8  # bytes that are written and checked in a second
SAMPLE_TEXTS = 8  # texts that a probe encodes at first
MS_MARCO_TOKENS = 76  # of a passage, the mean of 8,841,823
DATA_SECONDS, DATA_BYTES = 2.5e-6, 420
"""Seconds to read an MS MARCO passage, and bytes held for it (`scripts/bench_full_size.py`)."""
TOKEN_BYTES, QUERY_TOKENS = 5, 10  # bytes of a token's text; tokens of a query
ROW_BYTES = 20  # that are stored for each text beside its row, with the number of its tokens
HIT_BYTES = 50  # of a stored hit: a line of a run, and its row and score
PROBE_SECONDS = 10.0


@dataclass(frozen=True)
class Workload:
    """How much there is to do.

    Attributes:
        tokens: Mean of a passage; None takes what was measured.
    """

    passages: int
    queries: int
    tokens: float | None = None


@dataclass(frozen=True)
class Rate:
    """How fast a model encodes texts or scores pairs on this machine.

    Attributes:
        per_second: Texts or pairs, of `tokens` each.
        tokens: Mean of those measured; 0 if they were not counted.
    """

    per_second: float
    tokens: float
    row_bytes: float
    memory_mb: float
    origin: str

    def seconds(self, items: float, tokens: float | None) -> float:
        """The time for items of a mean length."""
        longer = tokens / self.tokens if tokens and self.tokens else 1.0
        return items * longer / self.per_second


@dataclass(frozen=True)
class StageCost:
    """What a stage takes; a figure is None where it was not measured.

    Attributes:
        memory_mb: The most that the process holds.
        smaller: Which setting needs less; "" if none is known.
    """

    seconds: float | None = None
    memory_mb: float | None = None
    disk_bytes: int | None = None
    smaller: str = ""

    def bytes_of(self, what: str) -> float:
        """Of `memory` or `disk`; 0 where that is not known."""
        return 1e6 * (self.memory_mb or 0) if what == "memory" else self.disk_bytes or 0

    def document(self) -> Facts:
        """The figures as JSON."""
        return {"seconds": self.seconds, "memory_mb": self.memory_mb, "disk_bytes": self.disk_bytes}


Rates = Callable[[str], Rate | None]
"""The rate of the stage of a role, where it was measured."""


def data_cost(workload: Workload, rates: Rates) -> StageCost:
    """Of reading a collection, as MS MARCO was measured."""
    tokens, passages = workload.tokens or MS_MARCO_TOKENS, workload.passages
    share = tokens / MS_MARCO_TOKENS
    memory = BASE_MB + passages * DATA_BYTES * share / 1e6
    return StageCost(
        passages * DATA_SECONDS * share, memory, round(passages * TOKEN_BYTES * tokens), "data.corpus"
    )


def scores_cost(workload: Workload, rates: Rates) -> StageCost:
    """Of evaluating a ranking."""
    return StageCost(
        workload.queries / 10_000, BASE_MB + workload.passages * HELD_BYTES / 1e6, workload.queries * 100
    )


def rate_of(artifact: Any) -> Rate | None:
    """The rate that encoded texts or scored pairs were made with; None where none was computed here."""
    figures, origin = artifact.manifest["made"], artifact.manifest["facts"]
    if origin.get("probe"):
        return Rate(**origin["probe"], origin="a probe")
    per_second, usage = figures.get("items_per_second"), figures.get("encoding", {})
    if not per_second or figures.get("hardware") != machine.hardware():
        return None
    tokens = usage["tokens"] / usage["texts"] if usage.get("texts") else 0.0
    row_bytes = artifact.bytes / max(figures["items"], 1)
    return Rate(per_second, tokens, row_bytes, figures["peak_rss_mb"], f"{figures['items']:,} encoded here")


def probe(compute: Callable[[Sequence[Any]], tuple[Any, int]], items: Sequence[Any]) -> Facts:
    """Compute some items for `PROBE_SECONDS`, and say at which rate, as the attributes of a `Rate`.

    The first few are not timed. The number at once is doubled, until the time or the items, texts or pairs,
    are used up. `compute` gives arrays, and how many tokens there were.
    """
    until = time.perf_counter() + PROBE_SECONDS
    compute(items[:SAMPLE_TEXTS])
    count, busy, n_tokens, row_bytes, size = 0, 0.0, 0, 0.0, SAMPLE_TEXTS
    while count == 0 or (time.perf_counter() + 2 * busy < until and count < len(items)):
        chosen = items[count : count + size]
        started = time.perf_counter()
        arrays, tokens = compute(chosen)
        busy += time.perf_counter() - started
        count, n_tokens, size = count + len(chosen), n_tokens + tokens, 2 * size
        row_bytes += sum(array.nbytes for array in arrays)
    return {
        "per_second": round(count / busy, 2),
        "tokens": round(n_tokens / count, 2),
        "row_bytes": round(row_bytes / count, 2),
        "memory_mb": round(machine.resident_mb(), 1),
    }
