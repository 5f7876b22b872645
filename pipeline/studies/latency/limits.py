"""Which of compared results are within limits of time and memory, which of them is best, the Pareto front."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from pipeline.comparison.side_by_side import Comparison
from pipeline.comparison.tables import ColumnGroup, standing
from pipeline.core.display import enumerated, figure
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.core.table import Column, FilledColumn, Table, right, table_of
from pipeline.studies.latency.record import LatencyRecord, read_latency
from pipeline.studies.study import Findings

if TYPE_CHECKING:
    from pipeline.studies.shared.plots import Plot

UNITS = {
    "ms": 1.0, "s": 1000.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20,
    "GiB": 2.0**30,
}  # fmt: skip
TIMES, SIZES = ("p50", "p95", "p99", "cold_start"), ("memory", "gpu_memory", "index")
EXAMPLE = '"p95 <= 20ms", "memory <= 500MB"'
P95, MEMORY = "p95 ms", "memory"


@dataclass(frozen=True)
class Limit:
    """The most that a figure may be: milliseconds, or bytes."""

    name: str
    most: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Limit:
        """A limit such as `p95 <= 20ms`.

        Raises:
            InputError: It is none.
        """
        match = re.fullmatch(r"\s*([\w ]+?)\s*<=\s*(\d*\.?\d+)\s*([A-Za-z]+)\s*", text)
        name, number, unit = match.groups() if match else ("", "", "")
        name = name.lower().replace(" ", "_")
        if unit not in UNITS or name not in (TIMES if unit in ("ms", "s") else SIZES):
            raise InputError(
                f"--limit {text}",
                allowed=f"{', '.join(TIMES)} <= a number of ms or s; {', '.join(SIZES)} <= of kB, MB or GB",
                fix=f"for example --limit {EXAMPLE}",
            )
        return cls(name, float(number) * UNITS[unit], f"{name} <= {number} {unit}")


Records = Mapping[str, Sequence[LatencyRecord | None]]
"""By result those of its collections; None where latency was not measured."""


def _records_of(comparison: Comparison) -> Records:
    return {result.name: [read_latency(each) for each in result.collections] for result in comparison.loaded}


def _costs_of(records: Sequence[LatencyRecord | None]) -> dict[str, float]:
    """The figures of a result that limits are about; of a suite the most of any collection.

    There are none where a collection's latency was not measured.
    """
    costs = [record.costs for record in records if record]
    if len(costs) < len(records):
        return {}
    names = [name for name in costs[0] if all(name in each for each in costs)]
    return {name: max(each[name] for each in costs) for name in names}


def columns_of(comparison: Comparison, _: object = None) -> ColumnGroup | None:
    """The latency and memory of each result, where one was measured."""
    records = _records_of(comparison)
    costs = [_costs_of(each) for each in records.values()]
    if not any(costs):
        return None
    section = "" if comparison.of_suites else "cost"
    columns: list[FilledColumn] = [
        (right(name, section=section, hint=hint, form=form), [each.get(key) for each in costs])
        for name, key, form, hint in (
            ("p50 ms", "p50", ",.1f", "median time of one query"),
            (P95, "p95", ",.1f", "time in which 95% of single queries are answered"),
            (MEMORY, "memory", "bytes", "of the process that answers queries"),
        )
    ]
    documents: list[JsonObject | None] = [dict(each) if each else None for each in costs]
    return ColumnGroup("latency", documents, columns, list(_notes(records)))


def _notes(records: Records) -> Iterator[str]:
    """What to know before comparing latencies."""
    measured = {name: [record for record in each if record] for name, each in records.items()}
    machines = {
        name: {(*record.hardware.processors, record.threads) for record in each}
        for name, each in measured.items()
        if each
    }
    if len(set().union(*machines.values())) > 1:
        yield (
            f"latencies of {enumerated([*machines])} were measured on different machines or numbers of "
            "threads: they do not compare (benchmarco latency on one machine measures them again)"
        )
    noisy = [name for name, each in measured.items() if any(record.stability.noisy for record in each)]
    if noisy:
        yield f"latency of {enumerated(noisy)} was measured on a noisy machine (measure it again)"


@dataclass(frozen=True)
class Affordable(Findings):
    """Results within limits."""

    comparison: Comparison  # all of them
    limits: Sequence[Limit]  # those that were asked for
    costs: Mapping[str, Mapping[str, float]]  # by result, the best first; with `index`, as far as known
    front: Sequence[str]  # the results on the Pareto front of quality, p95 and memory
    close: Sequence[str]  # what the uncertainty of times leaves open, as clauses
    heading = "What one query costs"

    def beyond(self, name: str) -> list[str]:
        """The limits that a result exceeds or whose figure is not known, as clauses."""
        clauses = []
        for limit in self.limits:
            value = self.costs[name].get(limit.name)
            if value is None:
                clauses.append(f"{limit.name} not measured")
            elif value > limit.most:
                shown = figure(value, "bytes") if limit.name in SIZES else f"{figure(value, ',.1f')} ms"
                clauses.append(f"no: {limit.name} {shown}")
        return clauses

    @property
    def within(self) -> list[str]:
        """The results within all limits, the best first."""
        return [name for name in self.costs if not self.beyond(name)]

    @property
    def verdict(self) -> str:
        """Which result within the limits is best, and what the uncertainty of times leaves open."""
        if not self.limits:
            return ""
        within, measure = self.within, self.comparison.measure
        results = [entry for entry in self.comparison.results if entry.name in within]
        pairs = [pair for pair in self.comparison.pairs if pair.a in within and pair.b in within]
        best, others = "no result", list[str]()
        if results:
            best, others, _ = standing(measure, results, pairs, None)
        tested = {name for pair in pairs if within[0] in (pair.a, pair.b) for name in (pair.a, pair.b)}
        if untested := [name for name in within[1:] if name not in tested]:  # with a baseline
            others = [*others, f"not tested against {enumerated(untested)}"]
        where = enumerated([limit.text for limit in self.limits])
        return "; ".join([f"Within {where}: {best}", *others, *self.close])

    def json(self) -> JsonObject:
        """What `compare --json` prints as `latency`."""
        return {
            "limits": [limit.text for limit in self.limits],
            "verdict": self.verdict or None,
            "best": next(iter(self.within), None) if self.limits else None,
            "within": self.within if self.limits else None,
            "beyond": {name: why for name in self.costs if (why := self.beyond(name))},
            "front": list(self.front),
        }

    def tables(self) -> list[Table]:
        """A result a row: quality, cost, what it exceeds, and whether it is on the Pareto front."""
        means = {entry.name: entry.mean for entry in self.comparison.results}
        on_front = ["yes" if name in self.front else "" for name in self.costs]
        columns: list[FilledColumn] = [
            (Column("result", least=8), list(self.costs)),
            (right(self.comparison.measure), [means[name] for name in self.costs]),
            (right(P95, form=",.1f"), [costs.get("p95") for costs in self.costs.values()]),
            (right(MEMORY, form="bytes"), [costs.get("memory") for costs in self.costs.values()]),
            (right("index", form="bytes"), [costs.get("index") for costs in self.costs.values()]),
            (Column("on the front", wrap="never"), on_front),
        ]
        if self.limits:
            cells = ["; ".join(self.beyond(name)) or "yes" for name in self.costs]
            columns.insert(1, (Column("within", wrap="words"), cells))
        title = self.verdict or "quality and cost of one query"
        front = (
            f"front: no other result is as good in {self.comparison.measure}, {P95.removesuffix(' ms')} and "
            "memory, and better in one."
        )
        return [
            table_of(title, columns, [front], [(each, self.comparison.measure) for each in (P95, MEMORY)])
        ]

    def plots(self) -> list[Plot]:
        """Quality against p95 and memory."""
        # imports retrievers, which a comparison on the terminal does without
        from pipeline.studies.shared.plots import table_plots

        return list(table_plots(self.comparison, self.tables()[0], front=True))


def affordable(comparison: Comparison, wanted: Sequence[str] | None) -> Affordable | None:
    """The results within limits; None without limits where fewer than two were measured."""
    limits = [Limit.parse(text) for text in wanted or ()]
    records = _records_of(comparison)
    results = zip(comparison.results, records.values(), strict=True)
    costs: dict[str, dict[str, float]] = {}
    measured, points = [], []
    for entry, of_entry in sorted(results, key=lambda each: -each[0].mean):
        known = _costs_of(of_entry)
        sizes = {} if entry.index_bytes is None else {"index": float(entry.index_bytes)}
        costs[entry.name] = known | sizes
        if known:
            measured.append(entry.name)
            points.append((-entry.mean, known["p95"], known["memory"]))
    if not limits and len(measured) < 2:
        return None
    # on the front are those that no other equals or beats in everything and beats in something
    table = np.array(points).reshape(-1, 3)
    no_worse = (table[:, None] <= table).all(axis=2)  # [i, j]: i is no worse than j in anything
    beats = np.logical_and(no_worse, (table[:, None] < table).any(axis=2))
    front = [name for j, name in enumerate(measured) if not beats[:, j].any()]
    return Affordable(comparison, limits, costs, front, list(_close(records, limits)))


def _close(records: Records, limits: Sequence[Limit]) -> Iterator[str]:
    """Results whose interval of p50 or p95 holds a limit."""
    times = [limit for limit in limits if limit.name in ("p50", "p95")]
    for name, of_result in records.items():
        for record, limit in product(filter(None, of_result), times):
            low, high = (getattr(record.whole, f"{limit.name}_{end}") for end in ("low", "high"))
            if low is not None and low <= limit.most and (high is None or high > limit.most):
                ends = f"{low:,.1f} ms or more" if high is None else f"{low:,.1f} to {high:,.1f} ms"
                yield f"{limit.name} of {name} is uncertain, {ends} (95%)"
