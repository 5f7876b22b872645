"""Plots of the page: quality by cutoff, against speed and by date, and differences by collection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.comparison.pairs import Pair
from pipeline.comparison.side_by_side import Comparison
from pipeline.core.display import figure
from pipeline.studies.page.queries import QueryData
from pipeline.studies.shared.plots import (
    MUTED,
    Handles,
    Plot,
    draw_svg,
    result_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HALO: dict[str, Any] = {"linewidth": 5.0, "markersize": 9.0}
"""A curve under another one is drawn wider, so that both are seen."""


class Curve(NamedTuple):
    """The line of one result: the mean at each cutoff; `number` gives it colour and marker."""

    name: str
    number: int
    x: Sequence[int]
    y: Sequence[float]


def cutoff_plots(comparison: Comparison, data: QueryData) -> list[Plot]:
    """Each of the curves' measures by cutoff, for the results whose judgments are in the cache."""
    examined = [
        (entry.name, number, details)
        for number, (entry, details) in enumerate(zip(comparison.results, data.details, strict=True))
        if details
    ]
    if not examined:
        return []
    plots = []
    for measure in examined[0][2].curves:
        lines = [
            Curve(name, number, details.cutoffs, details.curves[measure])
            for name, number, details in examined
        ]
        largest = max(line.x[-1] for line in lines)
        ends = ", ".join(f"{line.name} {figure(line.y[-1])}" for line in lines)
        svg = draw_curves(lines, measure, f"{measure} by cutoff k; at the largest: {ends}")
        plots.append(Plot(svg, f"{measure}@k for k = 1 to {largest:,}, mean over all queries."))
    return plots


def history_plot(comparison: Comparison) -> Plot:
    """The means of each name by date, with a line through those of one name."""
    numbers = {entry.name: number for number, entry in enumerate(comparison.results)}

    def draw(axes: Axes) -> Handles:
        from matplotlib import dates as calendar

        drawn: list[Any] = []
        for each in comparison.history:
            dates: Any = [datetime.fromisoformat(run.created) for run in each.runs if run.created]
            means = [run.mean for run in each.runs if run.created]
            drawn += axes.plot(dates, means, **result_style(numbers[each.name]))
        untyped: Any = calendar
        locator = untyped.AutoDateLocator(maxticks=6)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator))
        axes.set(ylabel=comparison.measure)
        return drawn

    names = [each.name for each in comparison.history]
    ends = ", ".join(f"{each.name} {figure(each.runs[-1].mean)}" for each in comparison.history)
    salt = f"history {comparison.collection} {comparison.measure}"
    svg = draw_svg(draw, names, salt, f"{comparison.measure} by date; at the end: {ends}")
    return Plot(svg, f"{comparison.measure} of the results of a name, by the date of the run.")


def forest_plot(measure: str, pair: Pair) -> Plot:
    """The difference on each collection, one below the other, and apart that of the macro mean."""
    rows = [(each.collection, each.difference, each.ci_low, each.ci_high) for each in pair.collections]
    rows.append(("macro mean", pair.difference, pair.ci_low, pair.ci_high))

    def draw(axes: Axes) -> Handles:
        places = [-float(number) for number in range(len(rows) - 1)] + [-len(rows) + 0.5]
        for (_, value, low, high), place in zip(rows, places, strict=True):
            bars = [[abs(value - (value if end is None else end))] for end in (low, high)]
            last = place == places[-1]
            style = result_style(0) | {"linestyle": "none", "marker": "D" if last else "o"}
            axes.errorbar(value, place, xerr=bars, elinewidth=1.6 if last else 1.1, **style)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set_yticks(places, [fill(name, 24) for name, *_ in rows])
        axes.set(xlabel="difference")
        return []

    figures = "; ".join(
        f"{name} {figure(value, '+.4f')} {figure((low, high), '+.4f')}".rstrip()
        for name, value, low, high in rows
    )
    title = f"{pair.a} - {pair.b}, {measure}: {figures}"
    svg = draw_svg(draw, [], f"forest {pair.a} {pair.b} {measure}", title, 1.0 + 0.26 * len(rows))
    caption = f"{pair.a} - {pair.b}: differences in {measure} with their 95% intervals, each by itself."
    return Plot(svg, caption)


def draw_curves(lines: Sequence[Curve], measure: str, title: str) -> str:
    """A measure by cutoff with one line per result, as an `<svg>` element."""
    hidden = [any(_same(line, above) for above in lines[number + 1 :]) for number, line in enumerate(lines)]

    def draw(axes: Axes) -> Handles:
        drawn = []
        for line, is_hidden in zip(lines, hidden, strict=True):
            wider = HALO if is_hidden else {}
            drawn += axes.plot(line.x, line.y, **result_style(line.number), **wider)
        deepest = max(line.x[-1] for line in lines)
        ticks = [k for k in (1, 3, 10, 30, 100, 300, 1000) if k <= deepest]
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{k:,}" for k in ticks])
        axes.set(xlabel="cutoff k", ylabel=f"{measure}@k", ylim=(None, min(1.02, axes.get_ylim()[1])))
        return drawn

    return draw_svg(draw, [line.name for line in lines], f"curve {measure}", title)


def _same(line: Curve, other: Curve) -> bool:
    """Whether two curves are the same to the eye, so that the later one hides the earlier."""
    return (
        tuple(line.x) == tuple(other.x)
        and max(abs(a - b) for a, b in zip(line.y, other.y, strict=True)) < 2e-3
    )
