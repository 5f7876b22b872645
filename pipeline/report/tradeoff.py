"""Approximate indexes against exact search: what each loses and how fast it is, as a table and a plot.

found = tradeoffs(json.loads(path.read_text()) for path in Path("results").glob("*/metrics.json"))
draw_tradeoffs(found, Path("results/tradeoff.svg"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from pipeline.core.display import rate, rounded, signed, signed_interval
from pipeline.report.table import fitting_tables, plain_table

Columns = dict[str, list[tuple[Any, str]]]
"""By title, a cell per index: the value to sort by, None where there is none, and the text to show."""


@dataclass(frozen=True)
class Tradeoff:
    """A benchmark whose index was measured against exact search.

    Attributes:
        name: Name of the benchmark.
        index: The section `index` of `metrics.json`: factory, parameters, times, sizes and speed.
        overlap: Share of the exact top hits that the index finds, by cutoff.
        change: By measure: the exact mean, the difference to it, and the ends of its interval.
    """

    name: str
    index: Mapping[str, Any]
    overlap: Mapping[str, float]
    change: Mapping[str, Mapping[str, float]]

    @property
    def label(self) -> str:
        """The factory string of the index and its parameters."""
        given = " ".join(f"{name}={value}" for name, value in self.index["parameters"].items())
        return f"{self.index['factory']} {given}".strip()


def tradeoffs(results: Iterable[Mapping[str, Any]]) -> list[Tradeoff]:
    """The trade-offs of the results that were measured against exact search.

    Args:
        results: The contents of `metrics.json`.
    """
    return [
        Tradeoff(result["name"], result["index"], exact["overlap"], exact["change"])
        for result in results
        if (exact := result.get("against_exact"))
    ]


def tradeoff_tables(found: Sequence[Tradeoff], width: int) -> list[Table]:
    """One column per benchmark: its index, what it loses against exact search, its costs and its speed.

    Args:
        found: The trade-offs to show.
        width: Characters per line; columns that do not fit go into further tables.
    """
    if not found:
        return []
    rows = {title: [text for _, text in cells] for title, cells in (losses(found) | costs(found)).items()}
    names = [tradeoff.name for tradeoff in found]
    columns = dict(zip(names, zip(*rows.values(), strict=True), strict=True))
    left = width - max(map(len, rows)) - 4
    return fitting_tables(_table, "against exact search", "", list(rows), columns, left)


def _table(title: str, header: tuple[str, ...]) -> Table:
    return plain_table(title, header, right=range(1, len(header)))


_COSTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("searched on", "device", str),
    ("queries/s, all threads", "queries_per_second", rate),
    ("queries/s, one thread", "queries_per_second_one_thread", rate),
    ("ms a query, median", "latency_ms.median", "{:.3g}".format),
    ("ms a query, 95%", "latency_ms.p95", "{:.3g}".format),
    ("ms a query, 99%", "latency_ms.p99", "{:.3g}".format),
    ("seconds to build", "build_seconds", "{:,.2f}".format),
    ("MB on disk", "disk_megabytes", "{:,.1f}".format),
    ("MB in memory", "memory_mb", "{:,.1f}".format),
)
"""Title, place in the section `index` of `metrics.json`, and format. A GPU lacks some of the values."""


def cutoffs(found: Iterable[Tradeoff]) -> list[str]:
    """The cutoffs at which the overlap of any index was measured, ascending."""
    return sorted({cutoff for tradeoff in found for cutoff in tradeoff.overlap}, key=int)


def losses(found: Sequence[Tradeoff]) -> Columns:
    """The indexes, their overlap with exact search, and the changes of the measures."""
    columns: Columns = {"index": [(tradeoff.label, tradeoff.label) for tradeoff in found]}
    for cutoff in cutoffs(found):
        shares = [tradeoff.overlap.get(cutoff) for tradeoff in found]
        columns[f"overlap@{cutoff}"] = [(share, rounded(share)) for share in shares]
    for measure in dict.fromkeys(measure for tradeoff in found for measure in tradeoff.change):
        columns[f"change of {measure}"] = [_change(tradeoff.change.get(measure)) for tradeoff in found]
    return columns


def _change(change: Mapping[str, float] | None) -> tuple[float | None, str]:
    if change is None:
        return None, ""
    interval = signed_interval(change["ci_low"], change["ci_high"])
    return change["difference"], f"{signed(change['difference'])}\n{interval}"


def costs(found: Sequence[Tradeoff]) -> Columns:
    """Speed, time to build and sizes of the indexes, as far as any of them has them."""
    columns = {}
    for title, place, form in _COSTS:
        values = [_value_at(tradeoff.index, place) for tradeoff in found]
        if any(value is not None for value in values):
            columns[title] = [(value, "" if value is None else form(value)) for value in values]
    return columns


def _value_at(index: Mapping[str, Any], place: str) -> Any:
    """The value at a dotted place in the section of an index, or None."""
    value: Any = {**index, "disk_megabytes": index["disk_bytes"] / 1e6}
    for key in place.split("."):
        value = value.get(key) if value else None
    return value


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
        if cutoff in tradeoff.overlap:
            by_factory.setdefault(tradeoff.index["factory"], []).append(tradeoff)
    for factory, group in by_factory.items():
        group = sorted(group, key=lambda tradeoff: float(tradeoff.index["queries_per_second"]))
        speeds = [tradeoff.index["queries_per_second"] for tradeoff in group]
        overlaps = [tradeoff.overlap[cutoff] for tradeoff in group]
        axes.plot(speeds, overlaps, marker="o", label=factory)
        for tradeoff, x, y in zip(group, speeds, overlaps, strict=True):
            text = tradeoff.label.removeprefix(factory).strip()
            axes.annotate(text, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("queries per second, all threads")
    axes.set_ylabel(f"overlap with exact search at {cutoff}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
