"""Plots of the page: quality by cutoff, and differences by collection."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from pipeline.comparison.pairs import Pair
from pipeline.comparison.side_by_side import Comparison
from pipeline.core.display import figure
from pipeline.studies.page.queries import CURVES, QueryData, ResultDetails
from pipeline.studies.shared.plots import MUTED, Handles, Plot, draw_svg, result_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def cutoff_plots(comparison: Comparison, data: QueryData) -> list[Plot]:
    """Each of the curves' measures by cutoff, for the results whose judgments are in the cache."""
    examined = [
        (entry.name, number, details)
        for number, (entry, details) in enumerate(zip(comparison.results, data.details, strict=True))
        if details
    ]
    return [_draw_curves(measure, examined) for measure in CURVES] if examined else []


def _draw_curves(measure: str, examined: Sequence[tuple[str, int, ResultDetails]]) -> Plot:
    """A measure by cutoff, with a line for each result: its name, number and details."""
    deepest = max(details.cutoffs[-1] for *_, details in examined)

    def draw(axes: Axes) -> Handles:
        drawn = []
        for _, number, details in examined:  # a curve shows through one that hides it
            drawn += axes.plot(details.cutoffs, details.curves[measure], alpha=0.8, **result_style(number))
        ticks = [k for k in (1, 3, 10, 30, 100, 300, 1000) if k <= deepest]
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{k:,}" for k in ticks])
        axes.set(xlabel="cutoff k", ylabel=f"{measure}@k", ylim=(None, min(1.02, axes.get_ylim()[1])))
        return drawn

    ends = ", ".join(f"{name} {figure(details.curves[measure][-1])}" for name, _, details in examined)
    title = f"{measure} by cutoff k; at the largest: {ends}"
    svg = draw_svg(draw, [name for name, *_ in examined], f"curve {measure}", title)
    return Plot(svg, f"{measure}@k for k = 1 to {deepest:,}, mean over all queries.")


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
