"""Plots of the page: drawn by Matplotlib as SVG, in the colours and fonts of the page.

Text stays text. Every colour is a CSS variable of the page, so that one plot serves light mode, dark mode
and print. Matplotlib has no CSS variables: each is drawn as a colour that is used for nothing else, which is
then replaced by the variable.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from math import ceil, floor, log10
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
    "axes.labelsize": 9,
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
    "xtick.minor.size": 3,
    "text.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.2,
}


class SpeedPoint(NamedTuple):
    """Items per second and quality of one result, with the interval of its mean, None where none is shown."""

    name: str
    number: int
    speed: float
    mean: float
    low: float | None
    high: float | None


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
        is_mean = upwards == comparison.measure
        points = []
        for row in table.rows if across in columns and upwards in columns else ():
            x, y = (getattr(row[columns[name]], "value", None) for name in (across, upwards))
            if x is not None and y is not None:
                entry = comparison.results[numbers[row[0]]]
                ends = (entry.ci_low, entry.ci_high) if is_mean else (None, None)
                points.append(SpeedPoint(row[0], numbers[row[0]], x, y, *ends))
        if len({point.speed for point in points}) > 1:
            form = table.columns[columns[across]].form
            figures = [f"{each.name} {figure(each.mean)} at {figure(each.speed, form)}" for each in points]
            title = f"{upwards} against {across}: {', '.join(figures)}"
            svg = draw_speeds(points, upwards, across, title, front, form)
            bars = f"; bars are 95% intervals of {upwards}" if is_mean else ""
            line = "; the line joins the results that nothing cheaper beats" if front else ""
            yield Plot(svg, f"{upwards} against {across}{bars}{line}.")


LEAST_SPAN = 0.1


def mean_axis(means: Iterable[tuple[float, float | None, float | None]]) -> tuple[float, float]:
    """Ends of an axis for means, each with the ends of its interval.

    It spans the intervals, and at least `LEAST_SPAN` where a mean has none: a tie then looks like one.
    """
    rows = list(means)
    values = [value for row in rows for value in row if value is not None]
    low, high = min(values), max(values)
    least = LEAST_SPAN if any(None in row for row in rows) else 0
    wider = max(least - (high - low), 0) / 2
    return low - wider, high + wider


def draw_speeds(
    points: Sequence[SpeedPoint], measure: str, axis: str, title: str, front: bool = False, form: str = ""
) -> str:
    """Quality against a speed or a cost with one point and interval per result, as an `<svg>` element.

    `axis` is what the speeds are, and `form` how they are written; where they are costs, `front` draws the
    line of the results that nothing cheaper beats.
    """

    def draw(axes: Axes) -> Handles:
        drawn = []
        if front:
            ordered = sorted(points, key=lambda point: (point.speed, -point.mean))
            highest = accumulate((point.mean for point in ordered), max)
            x = [point.speed for point in ordered]
            axes.step(x, list(highest), where="post", color=MUTED, linewidth=1.0, zorder=1)
        for point in points:
            style = result_style(point.number) | {"linestyle": "none", "markersize": 6}
            ends = (point.mean if end is None else end for end in (point.low, point.high))
            bars = [[abs(point.mean - end)] for end in ends]
            drawn.append(axes.errorbar(point.speed, point.mean, bars, elinewidth=1.1, **style))
        axes.set_xscale("log")
        low, high = (end(point.speed for point in points) for end in (min, max))
        low, high = low / 1.6, high * 1.6
        ticks = _log_ticks(low, high)
        axes.set_xlim(low, high)
        axes.minorticks_off()
        axes.set_xticks(ticks, [_short_number(tick, form) for tick in ticks])
        axes.set(xlabel=axis, ylabel=measure)
        return drawn

    return draw_svg(draw, [point.name for point in points], f"speed {axis} {measure}", title)


MOST_TICKS = 6


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, at most `MOST_TICKS`: of each decade 1, 2 and 5, or 1 alone."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for digits in ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= MOST_TICKS:
            break
    return inside[:: -(-len(inside) // MOST_TICKS)]


def _short_number(value: float, form: str) -> str:
    """A round number of an axis: bytes with their unit, others with k and M."""
    if form == "bytes":
        return figure(value, "bytes").replace(".0 ", " ")
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"


def result_style(number: int) -> dict[str, Any]:
    """Colour, marker and line style of a result, by its position."""
    return {
        "color": f"#0001{number % COLORS:02x}",
        "marker": _MARKERS[(number + number // COLORS) % len(_MARKERS)],
        "linestyle": _LINE_STYLES[number // COLORS % len(_LINE_STYLES)],
    }


def draw_svg(
    draw: Callable[[Axes], Handles], names: Sequence[str], salt: str, title: str, height: float = 2.7
) -> str:
    """Draw one plot with its legend below; `height` is in inches, without the legend.

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
        figure.set_figheight(height + 0.19 * lines)
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
