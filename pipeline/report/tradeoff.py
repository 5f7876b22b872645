"""What is lost for what speed? Approximate indexes beside exact search, as a table and as a plot.

found = points(read_result(folder).record for folder in Path("results").iterdir())
plot(found, Path("results/tradeoff.svg"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.display import rate, rounded, signed, signed_interval
from pipeline.core.table import Column, Table
from pipeline.results.records import Change, IndexCost, Metrics


@dataclass(frozen=True)
class Point:
    """One benchmark whose index was measured against exact search.

    Attributes:
        name: The benchmark's.
        index: Its factory string, parameters, times, sizes and speed.
        overlap: Share of the exact top hits that were found, by cutoff.
        change: By measure: the exact mean, the difference to it, and the ends of its interval.
    """

    name: str
    index: IndexCost
    overlap: Mapping[str, float]
    change: Mapping[str, Change]


def points(results: Iterable[Metrics]) -> list[Point]:
    """The benchmarks that have a trade-off.

    Args:
        results: The contents of each `metrics.json`.
    """
    return [
        Point(result.name, result.index, result.against_exact.overlap, result.against_exact.change)
        for result in results
        if result.index and result.against_exact
    ]


def loss_tables(found: Sequence[Point]) -> list[Table]:
    """A benchmark a column: its index, what it finds of the exact hits, what that costs, how fast it is."""
    if not found:
        return []
    rows = {"index": [label(point) for point in found]}
    for cutoff in cutoffs(found):
        rows[f"overlap@{cutoff}"] = [rounded(point.overlap.get(cutoff)) for point in found]
    for measure in measures(found):
        rows[f"change of {measure}"] = [_change(point.change.get(measure)) for point in found]
    rows |= {title: [shown for _, shown in cells] for title, cells in costs(found).items()}
    columns = [Column(""), *(Column(point.name, "right", "never") for point in found)]
    return [Table("against exact search", columns, [(name, *cells) for name, cells in rows.items()])]


_COSTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("searched on", "device", str),
    ("queries/s, all threads", "queries_per_second", rate),
    ("queries/s, one thread", "queries_per_second_one_thread", rate),
    ("ms a query, median", "latency_ms.median", "{:.3g}".format),
    ("ms a query, 95%", "latency_ms.p95", "{:.3g}".format),
    ("ms a query, 99%", "latency_ms.p99", "{:.3g}".format),
    ("seconds to build", "build_seconds", "{:,.2f}".format),
    ("MB on disk", "disk_mb", "{:,.1f}".format),
    ("MB in memory", "memory_mb", "{:,.1f}".format),
)
"""Rows: what it is, where `metrics.json` has it, and how it is written. On a GPU some have no meaning."""


def cutoffs(found: Iterable[Point]) -> list[str]:
    """Where the overlap of any of them was measured, ascending."""
    return sorted({cutoff for point in found for cutoff in point.overlap}, key=int)


def measures(found: Iterable[Point]) -> list[str]:
    """Whose change was measured of any of them."""
    return list(dict.fromkeys(measure for point in found for measure in point.change))


def costs(found: Sequence[Point]) -> dict[str, list[tuple[Any, str]]]:
    """What indexes take: by title a figure of each, None where it has none, and how that is written."""
    rows = {}
    for title, section, form in _COSTS:
        values = [_at(point.index, section) for point in found]
        if any(value is not None for value in values):
            rows[title] = [(value, "" if value is None else form(value)) for value in values]
    return rows


def _at(index: IndexCost, path: str) -> Any:
    """A figure of an index, by its dotted path; None where it was not measured."""
    value: Any = index
    for key in path.split("."):
        value = getattr(value, key)
    return value


def _change(change: Change | None) -> str:
    if change is None:
        return ""
    return f"{signed(change.difference)}\n{signed_interval(change.ci_low, change.ci_high)}"


def label(point: Point) -> str:
    """The index's factory string and its parameters."""
    given = " ".join(f"{name}={value}" for name, value in point.index.parameters.items())
    return f"{point.index.factory} {given}".strip()


def plot(found: Sequence[Point], path: Path) -> None:
    """Draw overlap over queries per second, a line for each factory string.

    Args:
        found: At least one.
        path: Written, as its suffix says: .svg, .png or .pdf.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    cutoff = cutoffs(found)[0]
    by_factory: dict[str, list[Point]] = {}
    for point in found:
        if cutoff in point.overlap:
            by_factory.setdefault(point.index.factory, []).append(point)
    for factory, group in by_factory.items():
        group = sorted(group, key=lambda point: point.index.queries_per_second)
        speeds = [point.index.queries_per_second for point in group]
        overlaps = [point.overlap[cutoff] for point in group]
        axes.plot(speeds, overlaps, marker="o", label=factory)
        for point, x, y in zip(group, speeds, overlaps, strict=True):
            text = label(point).removeprefix(factory).strip()
            axes.annotate(text, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("queries per second, all threads")
    axes.set_ylabel(f"overlap with exact search at {cutoff}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
