"""The page's plots: what distinguishes their lines, and how far they reach."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

from pipeline.comparison.side_by_side import compare
from pipeline.report.page.plots import (
    Curve,
    SpeedPoint,
    cutoff_plots,
    draw_curves,
    draw_speeds,
    result_style,
)
from pipeline.report.page.queries import read_query_data


def test_no_two_of_many_results_look_alike() -> None:
    looks = [result_style(number) for number in range(30)]
    without_lines = {(each["color"], each["marker"]) for each in looks}
    assert len(without_lines) == len(looks)


def test_the_deepest_result_gives_the_ticks() -> None:
    drawn = draw_curves(
        [Curve("one", 0, [1, 10], [0.5, 1]), Curve("two", 1, [1, 100], [0.5, 1])], "recall", ""
    )
    assert ">100</text>" in drawn


def test_a_curve_under_an_equal_one_is_drawn_wider() -> None:
    equal = [Curve("fp32", 0, [1, 10], [0.5, 1]), Curve("int16", 1, [1, 10], [0.5, 1])]
    apart = [equal[0], Curve("bm25", 1, [1, 10], [0.4, 0.9])]
    assert "stroke-width: 5" in draw_curves(equal, "recall", "")
    assert "stroke-width: 5" not in draw_curves(apart, "recall", "")


def test_the_legend_has_every_name() -> None:
    names = ["_one", "two", "__three"]
    lines = [Curve(name, number, [1, 10], [0.5, 1]) for number, name in enumerate(names)]
    points = [SpeedPoint(name, number, 9, 0.5, 0.4, 0.6) for number, name in enumerate(names)]
    for drawn in (draw_curves(lines, "recall", ""), draw_speeds(points, "recall", "queries", "")):
        assert all(f">{name}</text>" in drawn for name in names)


def test_an_interval_that_rounding_puts_beside_its_mean_is_drawn() -> None:
    for beside in (math.nextafter(0.1, 0), math.nextafter(0.1, 1)):
        drawn = draw_speeds([SpeedPoint("one", 0, 9, 0.1, beside, beside)], "recall", "queries", "")
        assert ">one</text>" in drawn


def test_names_that_matplotlib_has_no_letters_for_are_drawn_without_a_warning() -> None:
    names = ["日本語", "한국어", "हिन्दी"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw_curves([Curve(name, 0, [1, 10], [0.5, 1]) for name in names], "recall", "")
    assert all(f">{name}</text>" in drawn for name in names)


def test_the_deepest_result_gives_the_caption(folders: list[Path]) -> None:
    compared = compare(folders[:2])
    data = read_query_data(compared)
    first = data.details[0]
    assert first is not None
    del first.cutoffs[3:]
    for curve in first.curves.values():
        del curve[3:]
    assert "k = 1 to 50," in cutoff_plots(compared, data)[0].caption
