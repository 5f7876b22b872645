"""Plots of the page: drawn by Matplotlib as SVG, in the colours and fonts of the page.

Text stays text. Every colour is a CSS variable of the page, so that one plot serves light mode, dark mode
and print. Matplotlib has no CSS variables: each is drawn as a colour that is used for nothing else, which is
then replaced by the variable.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.comparison.side_by_side import Comparison
from pipeline.core.display import figure
from pipeline.core.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Handles = Sequence[Any]
"""What Matplotlib drew, for its legend: lines or bars."""
COLORS = 10
"""Number of colours; further results use them again, with another marker and line style."""

_INK, MUTED, _RULE = "#0000f0", "#0000f1", "#0000f2"
_VARIABLES = {_INK: "--ink", MUTED: "--muted", _RULE: "--rule"} | {
    f"#0001{number:02x}": f"--series-{number}" for number in range(COLORS)
}
_LEGEND_WIDTH = 50  # characters per line
_MARKERS = "osD^vPX<>p"
_LINE_STYLES = ("-", "--", ":")
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.labelcolor": MUTED,
    "axes.grid": True,
    "axes.unicode_minus": False,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "text.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.2,
}


class Plot(NamedTuple):
    """An `<svg>` element and its caption."""

    svg: str
    caption: str


def table_plots(comparison: Comparison, table: Table, front: bool = False) -> Iterator[Plot]:
    """The columns of a table that are to be drawn against each other, if two points differ in the first.

    With `front`, a line joins the points that none to their left is above.
    """
    numbers = {entry.name: number for number, entry in enumerate(comparison.results)}
    columns = {column.name: number for number, column in enumerate(table.columns)}
    for across, upwards in table.plots:
        points = []
        for row in table.rows if {across, upwards} <= columns.keys() else ():
            x, y = (getattr(row[columns[name]], "value", None) for name in (across, upwards))
            if x and y is not None:  # the axis of costs is logarithmic
                points.append((numbers[row[0]], x, y))
        if len({x for _, x, _ in points}) > 1:
            form = table.columns[columns[across]].form
            yield _draw_points(comparison, points, across, upwards, form, front)


def _draw_points(
    comparison: Comparison,
    points: Sequence[tuple[int, float, float]],
    across: str,
    upwards: str,
    form: str,
    front: bool,
) -> Plot:
    """A point for each result, given by its number, with the interval of its mean; `form` is that of x."""
    results, is_mean = comparison.results, upwards == comparison.measure

    def draw(axes: Axes) -> Handles:
        from matplotlib.ticker import LogLocator

        drawn = []
        if front:
            ordered = sorted(points, key=lambda point: (point[1], -point[2]))
            _, costs, means = zip(*ordered, strict=True)
            highest = list(accumulate(means, max))
            axes.step(costs, highest, where="post", color=MUTED, linewidth=1.0, zorder=1)
        for number, x, y in points:
            entry, style = results[number], result_style(number) | {"linestyle": "none", "markersize": 6}
            ends = (entry.ci_low, entry.ci_high) if is_mean else (None, None)
            bars = [[abs(y - (y if end is None else end))] for end in ends]
            drawn.append(axes.errorbar(x, y, bars, elinewidth=1.1, **style))
        axes.set_xscale("log")
        low, high = (end(x for _, x, _ in points) for end in (min, max))
        axes.set_xlim(low / 1.6, high * 1.6)
        axes.minorticks_off()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 30 * low else (1,), numticks=6))
        axes.xaxis.set_major_formatter(lambda tick, _: figure(tick, "bytes" if form == "bytes" else ",.10g"))
        axes.set(xlabel=across, ylabel=upwards)
        return drawn

    names = [results[number].name for number, *_ in points]
    figures = [
        f"{name} {figure(y)} at {figure(x, form)}" for name, (_, x, y) in zip(names, points, strict=True)
    ]
    title = f"{upwards} against {across}: {', '.join(figures)}"
    svg = draw_svg(draw, names, f"speed {across} {upwards}", title)
    bars = f"; bars are 95% intervals of {upwards}" if is_mean else ""
    line = "; the line joins the results that nothing cheaper beats" if front else ""
    return Plot(svg, f"{upwards} against {across}{bars}{line}.")


def result_style(number: int) -> dict[str, Any]:
    """Colour, marker and line style of a result, by its position."""
    return {
        "color": f"#0001{number % COLORS:02x}",
        "marker": _MARKERS[(number + number // COLORS) % len(_MARKERS)],
        "linestyle": _LINE_STYLES[number // COLORS % len(_LINE_STYLES)],
    }


def draw_svg(draw: Callable[[Axes], Handles], names: Sequence[str], salt: str, title: str) -> str:
    """Draw one plot with its legend below.

    `draw` returns what it drew, one artist per result, whose `names` the legend has; Matplotlib leaves out
    names that begin with "_". `salt` makes the ids in the SVG reproducible, and different from those of other
    plots; `title` describes the plot for screen readers.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({**_STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser's fonts draw the text
        figure = Figure(figsize=(4.6, 3.1), layout="constrained")
        axes = figure.add_subplot()
        handles = draw(axes)
        longest = max(map(len, names), default=0)
        columns = 3 if longest < 14 else 2 if longest < 26 else 1
        labels = [fill(name, _LEGEND_WIDTH) for name in names]
        lines = -(-len(labels) // columns) + sum(label.count("\n") for label in labels)
        figure.set_figheight(2.7 + 0.19 * lines)  # inches
        if names:
            figure.legend(handles, labels, loc="outside lower center", ncols=columns)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _themed(written.getvalue(), title)


def _themed(svg: str, title: str) -> str:
    """The `<svg>` element alone, in the colours of the page and without unused ids."""
    from markupsafe import escape

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # it would apply to the whole page
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", svg)
    svg = re.sub(r"#000[01][0-9a-f]{2}", lambda match: f"var({_VARIABLES[match[0]]})", svg)
    svg = re.sub(r" font-family: [^;\"]*;?", "", svg)  # the page sets it
    head = f'<svg role="img" aria-label="{escape(title)}"'
    return re.sub(r"<svg", lambda _: head, svg, count=1)
