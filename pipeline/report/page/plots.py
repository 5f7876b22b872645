"""Which plots does a report hold? Matplotlib's, as SVG inside the page, in the page's own colours and type.

Text stays text. Every colour is a CSS variable of the page, so the same plot is right in light, in dark and
on paper: while drawing, a variable is stood for by a colour that nothing else has.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from pipeline.core.display import rate, rounded
from pipeline.report.page.queries import Evidence
from pipeline.report.page.rankings import CURVES
from pipeline.results.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = 10
"""How many results have a colour of their own; then they come again, with another marker and stroke."""

_INK, _MUTED, _RULE = "#0000f0", "#0000f1", "#0000f2"
_VARIABLES = {_INK: "--ink", _MUTED: "--muted", _RULE: "--rule"} | {
    f"#0001{number:02x}": f"--series-{number}" for number in range(COLORS)
}
_LEGEND = 50  # letters of a name in a line
_MARKERS, _STROKES = "osD^vPX<>p", ("-", "--", ":")
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _MUTED,
    "axes.linewidth": 0.7,
    "axes.labelcolor": _MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "xtick.minor.size": 3,
    "text.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.2,
}


@dataclass(frozen=True)
class Curve:
    """One result's line.

    Attributes:
        name: For the legend.
        number: Its place among the results, which gives colour and marker.
        x: Cutoffs, ascending.
        y: A mean for each.
    """

    name: str
    number: int
    x: Sequence[int]
    y: Sequence[float]


@dataclass(frozen=True)
class Point:
    """One result's speed and quality.

    Attributes:
        name: For the legend.
        number: Its place among the results.
        speed: Items per second.
        mean: Of the measure.
        low: The low end of its interval.
        high: The high end.
    """

    name: str
    number: int
    speed: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Plot:
    """A plot of the page: an `<svg>` element and its caption."""

    svg: str
    caption: str


def over_cutoffs(comparison: Comparison, evidence: Evidence) -> list[Plot]:
    """Each measure of `failures.CURVES` over the cutoff, for the results whose judgments are there."""
    told = [
        (entry.name, number, examined)
        for number, (entry, examined) in enumerate(zip(comparison.results, evidence.examined, strict=True))
        if examined
    ]
    if not told:
        return []
    deepest = max(examined.cutoffs[-1] for _, _, examined in told)
    made = []
    for measure in CURVES:
        lines = [
            Curve(name, number, examined.cutoffs, examined.curves[measure]) for name, number, examined in told
        ]
        ends = ", ".join(f"{line.name} {rounded(line.y[-1])}" for line in lines)
        svg = curves(lines, measure, f"{measure} over the cutoff k; at the last: {ends}")
        made.append(Plot(svg, f"{measure}@k from k = 1 to {deepest:,}, mean over all queries."))
    return made


def against_speed(comparison: Comparison) -> list[Plot]:
    """Quality against passages and against queries per second, for the results whose speed is known."""
    made = []
    for unit, what in (("passages", "encoded and indexed"), ("queries", "encoded and searched")):
        points = [
            Point(entry.name, number, speed, entry.mean, entry.ci_low, entry.ci_high)
            for number, entry in enumerate(comparison.results)
            if (speed := getattr(entry, f"{unit}_per_second"))
        ]
        if points:
            caption = (
                f"{unit.capitalize()} {what} per second; bars are 95% intervals of {comparison.measure}."
            )
            made.append(speed_plot(points, comparison.measure, unit, caption))
    return made


def speed_plot(points: Sequence[Point], measure: str, unit: str, caption: str) -> Plot:
    """A measure against speed, which says its figures to those who cannot see it."""
    told = ", ".join(f"{point.name} {rounded(point.mean)} at {rate(point.speed)}" for point in points)
    return Plot(speeds(points, measure, unit, f"{measure} against {unit} per second: {told}"), caption)


def curves(lines: Sequence[Curve], measure: str, title: str) -> str:
    """A measure over the cutoff, a line a result, as an `<svg>` element."""

    def draw(axes: Axes) -> list[Any]:
        drawn = [axes.plot(line.x, line.y, **look(line.number))[0] for line in lines]
        deepest = max(line.x[-1] for line in lines)
        ticks = [k for k in (1, 3, 10, 30, 100, 300, 1000) if k <= deepest]
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{k:,}" for k in ticks])
        axes.set(xlabel="cutoff k", ylabel=f"{measure}@k", ylim=(None, min(1.02, axes.get_ylim()[1])))
        return drawn

    return _svg(draw, [line.name for line in lines], f"curve {measure}", title)


def speeds(points: Sequence[Point], measure: str, unit: str, title: str) -> str:
    """Quality against speed, a point with its interval a result, as an `<svg>` element."""

    def draw(axes: Axes) -> list[Any]:
        drawn = []
        for point in points:
            alone = look(point.number) | {"linestyle": "none", "markersize": 6}
            ends = point.mean - point.low, point.high - point.mean
            spread = [[max(end, 0)] for end in ends]  # rounding may leave a mean just outside
            drawn.append(axes.errorbar(point.speed, point.mean, spread, elinewidth=1.1, **alone))
        axes.set_xscale("log")
        fastest, slowest = max(p.speed for p in points), min(p.speed for p in points)
        axes.set_xlim(slowest / 1.6, fastest * 1.6)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        if fastest < 20 * slowest:
            axes.xaxis.set_minor_formatter(
                lambda value, _: f"{value:,.10g}" if f"{value:e}"[0] in "25" else ""
            )
        axes.set(xlabel=f"{unit} per second", ylabel=measure)
        return drawn

    return _svg(draw, [point.name for point in points], f"speed {unit} {measure}", title)


def look(number: int) -> dict[str, Any]:
    """Colour, marker and stroke of a result, by its place among the results."""
    return {
        "color": f"#0001{number % COLORS:02x}",
        "marker": _MARKERS[(number + number // COLORS) % len(_MARKERS)],
        "linestyle": _STROKES[number // COLORS % len(_STROKES)],
    }


def _svg(draw: Callable[[Axes], list[Any]], names: Sequence[str], salt: str, title: str) -> str:
    """Draw one plot with its legend below.

    Args:
        draw: Draws into the axes, and returns what it drew of each result.
        names: The results', for the legend; Matplotlib's own would leave out those that begin with "_".
        salt: Makes the ids inside differ from those of the page's other plots, and the same every time.
        title: What the plot shows, for those who cannot see it.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({**_STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser's fonts draw the text
        figure = Figure(figsize=(4.6, 3.1), layout="constrained")
        axes = figure.add_subplot()
        handles = draw(axes)
        columns = 3 if max(map(len, names)) < 14 else 2 if max(map(len, names)) < 26 else 1
        labels = [fill(name, _LEGEND) for name in names]
        lines = -(-len(labels) // columns) + sum(label.count("\n") for label in labels)
        figure.set_figheight(2.7 + 0.19 * lines)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _themed(written.getvalue(), title)


def _themed(svg: str, title: str) -> str:
    """The `<svg>` element alone, with the page's colours and without ids that nothing refers to."""
    from markupsafe import escape

    svg = re.sub(r"<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)  # for the whole page
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", svg)
    svg = re.sub(r"#000[01][0-9a-f]{2}", lambda match: f"var({_VARIABLES[match[0]]})", svg)
    svg = re.sub(r" font-family: [^;\"]*;?", "", svg)  # the page's own
    head = f'<svg role="img" aria-label="{escape(title)}"'
    return re.sub(r"<svg", lambda _: head, svg, count=1)
