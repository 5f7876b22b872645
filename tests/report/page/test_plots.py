"""The page's plots: what distinguishes their lines, and how far they reach."""

from __future__ import annotations

import warnings

from pipeline.report.page.plots import (
    Curve,
    SpeedPoint,
    draw_curves,
    draw_speeds,
    result_style,
)


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


def test_names_that_matplotlib_has_no_letters_for_are_drawn_without_a_warning() -> None:
    names = ["日本語", "한국어", "हिन्दी"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw_curves([Curve(name, 0, [1, 10], [0.5, 1]) for name in names], "recall", "")
    assert all(f">{name}</text>" in drawn for name in names)
