"""Approximate indexes against exact search: what each loses and how fast it is, as tables and a plot.

found = tradeoffs(read_result(folder).record for folder in Path("results").iterdir())
draw_tradeoffs(found, Path("results/tradeoff.svg"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from pipeline.core.display import rate, rounded, signed, signed_interval
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.results.records import Metrics
from pipeline.retrievers.dense import IndexCost
from pipeline.retrievers.ranking import AgainstExact, Change


@dataclass(frozen=True)
class Tradeoff:
    """A benchmark whose index was measured against exact search: what the index costs, and what it loses."""

    name: str
    index: IndexCost
    exact: AgainstExact


def tradeoffs(results: Iterable[Metrics]) -> list[Tradeoff]:
    """The trade-offs of the results that were measured against exact search."""
    return [
        Tradeoff(result.name, index, exact)
        for result in results
        if (index := result.section(IndexCost)) and (exact := result.section(AgainstExact))
    ]


_COSTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("queries/s, all threads", "queries_per_second", rate),
    ("queries/s, one thread", "queries_per_second_one_thread", rate),
    ("ms a query, median", "latency_ms.median", "{:.3g}".format),
    ("ms a query, 95%", "latency_ms.p95", "{:.3g}".format),
    ("ms a query, 99%", "latency_ms.p99", "{:.3g}".format),
    ("seconds to build", "build_seconds", "{:,.2f}".format),
    ("MB on disk", "disk_bytes", lambda count: f"{count / 1e6:,.1f}"),
    ("MB in memory", "memory_mb", "{:,.1f}".format),
)
"""Title, attribute of `IndexCost`, and format. A GPU lacks some of the values."""


def loss_tables(found: Sequence[Tradeoff]) -> list[Table]:
    """What indexes lose against exact search, and what they cost: a benchmark a row; empty without any."""
    if not found:
        return []
    names = Column("result"), [tradeoff.name for tradeoff in found]
    losses: list[FilledColumn] = [names, (Column("index"), [tradeoff.index.label for tradeoff in found])]
    for cutoff in cutoffs(found):
        shares = [tradeoff.exact.overlap.get(cutoff) for tradeoff in found]
        losses.append((Column(f"overlap@{cutoff}", "right"), [Cell(rounded(x), x) for x in shares]))
    for measure in dict.fromkeys(measure for tradeoff in found for measure in tradeoff.exact.change):
        changes = [_change(tradeoff.exact.change.get(measure)) for tradeoff in found]
        losses.append((Column(f"change of {measure}", "right"), changes))
    devices = [tradeoff.index.device or "" for tradeoff in found]
    costs: list[FilledColumn] = [names, (Column("searched on"), devices)]
    for title, attribute, form in _COSTS:
        values = [attrgetter(attribute)(tradeoff.index) for tradeoff in found]
        cells = [Cell("" if value is None else form(value), value) for value in values]
        costs.append((Column(title, "right"), cells))
    return [
        table_of("against exact search", losses, [OVERLAP]),
        table_of("speed and size of the index", costs, [SPEED]),
    ]


OVERLAP = (
    "Overlap is the share of the top hits of exact search that the index finds. A change is the mean minus "
    "that of exact search, with its 95% interval."
)
SPEED = "Speed is that of the search alone, in the run that computed it."


def cutoffs(found: Iterable[Tradeoff]) -> list[str]:
    """The cutoffs at which the overlap of any index was measured, ascending."""
    return sorted({cutoff for tradeoff in found for cutoff in tradeoff.exact.overlap}, key=int)


def _change(change: Change | None) -> Cell:
    if change is None:
        return Cell("", None)
    interval = signed_interval(change.ci_low, change.ci_high)
    return Cell(f"{signed(change.difference)}\n{interval}".rstrip(), change.difference)


def draw_tradeoffs(found: Sequence[Tradeoff], path: Path) -> None:
    """Draw overlap against queries per second, with one line per factory string.

    Args:
        found: One or more trade-offs.
        path: The file to write; its suffix gives the format: .svg, .png or .pdf.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    cutoff = cutoffs(found)[0]
    by_factory: dict[str, list[Tradeoff]] = {}
    for tradeoff in found:
        if cutoff in tradeoff.exact.overlap:
            by_factory.setdefault(tradeoff.index.factory, []).append(tradeoff)
    for factory, group in by_factory.items():
        group = sorted(group, key=lambda tradeoff: float(tradeoff.index.queries_per_second))
        speeds = [tradeoff.index.queries_per_second for tradeoff in group]
        overlaps = [tradeoff.exact.overlap[cutoff] for tradeoff in group]
        axes.plot(speeds, overlaps, marker="o", label=factory)
        for tradeoff, x, y in zip(group, speeds, overlaps, strict=True):
            text = tradeoff.index.label.removeprefix(factory).strip()
            axes.annotate(text, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("queries per second, all threads")
    axes.set_ylabel(f"overlap with exact search at {cutoff}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
