"""The content of `latency.json` in a result folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import Field

from pipeline.core.display import BYTES, counted, figure
from pipeline.core.result_records import Hardware, Name, Record, columns_of
from pipeline.core.table import Column, FilledColumn, Table, right, table_of
from pipeline.metrics.statistics import CONFIDENCE
from pipeline.results.folder import CollectionResult, read_record
from pipeline.storage.whole_files import check_files

LATENCY = "latency.json"
ENCODE, WHOLE = "encode", "whole"


class Quantiles(Record):
    """Milliseconds of queries: percentiles, and a 95% interval of `p50` and `p95`.

    The ends of an interval are order statistics whose ranks come from the binomial distribution; None where
    there are too few queries for one.
    """

    p50: float
    p95: float
    p99: float
    p50_low: float | None
    p50_high: float | None
    p95_low: float | None
    p95_high: float | None

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        """The percentiles of times in seconds, one or more."""
        ordered = np.sort(np.asarray(seconds, np.float64)) * 1000
        ends = (end for share in (0.5, 0.95) for end in _interval(ordered, share))
        values = (*np.percentile(ordered, (50, 95, 99)).tolist(), *ends)
        rounded = (None if value is None else round(value, 4) for value in values)
        return cls.model_validate(dict(zip(cls.model_fields, rounded, strict=True)))


def _interval(ordered: np.ndarray, share: float) -> tuple[float | None, float | None]:
    """A distribution-free interval of a quantile, from n sorted values (David and Nagaraja, 2003, 7.1)."""
    from scipy.stats import binom

    count, tail = len(ordered), (1 - CONFIDENCE) / 2
    low, high = int(binom.ppf(tail, count, share)), int(binom.ppf(1 - tail, count, share))
    return (float(ordered[low - 1]) if low >= 1 else None, float(ordered[high]) if high < count else None)


class Load(Record):
    """The queries answered by so many clients, each of which waits for its answer before it asks again."""

    concurrency: int
    queries: int  # that were answered
    stages: dict[str, Quantiles]  # by stage, and `whole`
    queries_per_second: float  # by all clients together
    errors: int = 0  # queries that a server did not answer, retries included
    retries: int = 0  # requests that were repeated for the others, which took that much longer


class ColdStart(Record):
    """Seconds from the start of a process to its first answer; files are in the system's cache."""

    seconds: float
    start: float  # Python, imports, and the identities of data and model
    model: float  # model, index: loading each, with its first use
    index: float


class MemoryUse(Record):
    """Memory of the process, in 10^6 bytes."""

    resident: float  # after all queries: what serving them takes
    peak: float  # the most while loading and answering
    model: float  # what loading the models and their libraries added
    index: float  # what loading the index and the passages' ids added
    gpu: float | None = None  # the most that torch held on one GPU; None without one


class RoundTrip(Record):
    """Of a served model: a request that computes nothing, and its share of the median of `encode`."""

    url: str
    round_trip: Quantiles
    share: float


class Stability(Record):
    """Whether the machine was quiet."""

    # first_half, second_half: Median milliseconds of each half of the queries, in the order of time.
    first_half: float
    second_half: float
    p: float  # of a Mann-Whitney test that the halves are alike
    work_p50: float  # work_p50, work_p95: milliseconds of one fixed piece of work, done before each query
    work_p95: float
    noisy: str  # what shows that other work disturbed the measurement, as a clause; "" if nothing does


class LatencyRecord(Record):
    """What one query of a result costs."""

    name: Name
    key: str  # of the result's scores
    loads: Annotated[tuple[Load, ...], Field(min_length=1)]  # of the fewest clients first
    # Queries answered before, and not counted: their number, and the milliseconds of the slowest.
    warm_up: tuple[int, float]
    cold_start: ColdStart
    memory: MemoryUse
    stability: Stability
    network: RoundTrip | None = None
    # The share of the queries whose first ten passages are those of the result; None where its ranking is not
    # in the cache.
    agreement: float | None = None
    threads: int  # how many threads libraries could use
    hardware: Hardware
    kernels: dict[str, str]  # by library of matrix products, what it runs on
    versions: dict[str, str]
    created: str
    bytes_per_passage: float | None = None  # in the result's index; None where it is not known

    @property
    def whole(self) -> Quantiles:
        """The time of a whole query, by the fewest clients."""
        return self.loads[0].stages[WHOLE]

    @property
    def costs(self) -> dict[str, float]:
        """What limits are about, in milliseconds and bytes; no `gpu_memory` without a GPU."""
        memory = {"memory": self.memory.resident, "gpu_memory": self.memory.gpu}
        return {
            **{name: getattr(self.whole, name) for name in ("p50", "p95", "p99")},
            "cold_start": self.cold_start.seconds * 1000,
            **{name: megabytes * 1e6 for name, megabytes in memory.items() if megabytes is not None},
        }

    def tables(self) -> list[Table]:
        """The times by stage and number of clients, with the cold start and memory below."""
        rows = [(load, stage, times) for load in self.loads for stage, times in load.stages.items()]
        several = len(self.loads) > 1
        times = [each for *_, each in rows]
        clients = [load.concurrency if several else None for load, *_ in rows]
        columns: list[FilledColumn] = [
            (Column("clients", "right", form=""), clients),
            (Column("stage"), [stage for _, stage, _ in rows]),
            *columns_of(times, [(f"{name} ms", name, ",.2f") for name in ("p50", "p95", "p99")]),
            (right("95% interval of p95", form=",.2f"), [(each.p95_low, each.p95_high) for each in times]),
        ]
        counts = {"queries_per_second": ("queries/s", "rate")}
        counts |= {name: (name, ",") for name in ("errors", "retries") if self.network}
        for name, (heading, form) in counts.items():
            values = [getattr(load, name) if stage == WHOLE else None for load, stage, _ in rows]
            columns.append((Column(heading, "right", form=form), values))
        way = "each client one at a time" if several else "one at a time"
        title = f"{self.name}: latency of {self.loads[0].queries} queries, {way}"
        return [table_of(title, columns, list(self._notes()))]

    def _notes(self) -> Iterator[str]:
        if self.network:
            trip = self.network.round_trip.p50
            share = f"{self.network.share:.0%} of {ENCODE}"
            yield f"Network: {trip:,.1f} ms to {self.network.url} and back, {share}."
        if self.stability.noisy:
            yield f"The machine is noisy: {self.stability.noisy}. Measure again when it is quiet."
        if self.agreement is not None and self.agreement < 1:
            yield f"{1 - self.agreement:.1%} of the queries have other first ten passages than in the result."
        gpus = "".join(f", {gpu}" for gpu in self.hardware.gpus)
        yield f"On {self.hardware.cpu}{gpus}, {counted(self.threads, 'thread')}."
        memory, cold = self.memory, self.cold_start
        sizes = {"all": memory.resident, "peak": memory.peak, "model": memory.model, "index": memory.index}
        sizes |= {} if memory.gpu is None else {"GPU": memory.gpu}
        known = [f"{name} {figure(size * 1e6, 'bytes')}" for name, size in sizes.items()]
        yield f"Memory: {', '.join(known)}."
        parts = f"start {cold.start:.1f}, model {cold.model:.1f}, index {cold.index:.1f}"
        yield f"Cold start, to the first answer: {cold.seconds:.1f} s ({parts})."
        if self.bytes_per_passage:
            yield f"Index: {figure(self.bytes_per_passage, ',.0f')} {BYTES}."


def read_latency(result: CollectionResult) -> LatencyRecord | None:
    """The record of a result; None if there is none, or it is of other settings or data.

    Raises:
        InputError: The file is damaged.
    """
    folder = result.folder
    if not (folder / LATENCY).is_file():
        return None
    check_files(folder, [LATENCY])
    record = read_record(folder, LATENCY, LatencyRecord, f"run benchmarco latency {folder} again")
    return record if record.key == result.key else None
