"""What the page says of approximate indexes and of forms of vectors, and the plots of both."""

from __future__ import annotations

import html
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

from pipeline import compare, load_config, run_benchmark
from pipeline.report.page.plots import Curve, SpeedPoint, draw_curves, draw_speeds, result_style
from pipeline.report.page.render import render_page
from pipeline.results.folder import read_result
from pipeline.results.records import Metrics
from pipeline.results.suite_folder import SavedSuite
from pipeline.results.tables import section_tables


def section(text: str, name: str) -> str:
    """A section of a page; nothing where there is none."""
    found = re.search(rf'<section id="{name}">.*?</section>', text, re.DOTALL)
    assert bool(found) == (f'<a href="#{name}">' in text)
    return html.unescape(found[0]) if found else ""


def test_the_plots_of_indexes_are_of_these_alone(folders: list[Path], indexed: list[Path]) -> None:
    text = render_page(compare([folders[0], *indexed], "mrr@10"))
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    plots = re.findall(r"<svg.*?</svg>", section(text, "against-exact-search"), re.DOTALL)
    names = [re.findall(r">(overlap@5|change of mrr@10)</text>", plot) for plot in plots]
    assert names == [["overlap@5"], ["change of mrr@10"]]
    for plot in plots:
        assert all(f">{folder.name}</text>" in plot for folder in indexed)
        assert f">{folders[0].name}</text>" not in plot


def test_a_figure_that_one_index_lacks_leaves_its_cell_empty(indexed: list[Path]) -> None:
    first, second = (json.loads((each / "metrics.json").read_text(encoding="utf-8")) for each in indexed)
    del first["index"]["memory_mb"]
    del second["against_exact"]["overlap"]["5"]
    del second["against_exact"]["change"]["mrr@10"]
    compared = compare(
        [
            SavedSuite.of_one(replace(read_result(folder), record=Metrics.model_validate(metrics)))
            for folder, metrics in zip(indexed, (first, second), strict=True)
        ]
    )
    (costs,) = section_tables(compared.records, compared.measure)["Against exact search"]
    names = [column.name for column in costs.columns]
    assert dict(zip(names, costs.rows[0], strict=True))["MB in memory"] == ""
    assert section(render_page(compared), "against-exact-search").count("<td></td>") == 3


def test_forms_of_other_sizes_are_one_plot_and_a_table(results: Path, folders: list[Path]) -> None:
    where = [f"cache={results}/indexes", f"output={results}/forms", "name=bits"]
    settings = ["model.vector_precision=binary", "model.truncate_dim=100"]
    bits = run_benchmark(load_config(results / "c.yaml", [*where, *settings])).folder
    shown = section(render_page(compare([folders[0], bits], "ndcg@10")), "quality-against-size")
    assert len(re.findall("<svg", shown)) == 1
    assert "bytes a passage" in shown
    for form, size in (("128 x fp32", 512), ("100 x binary", 13)):
        assert form in shown
        assert f'<td data-value="{size}">{size}</td>' in shown
    assert section(render_page(compare(folders, "ndcg@10")), "quality-against-size") == ""  # all of one size


def test_lines_of_plots_can_be_told_apart() -> None:
    looks = [result_style(number) for number in range(30)]
    assert len({(each["color"], each["marker"]) for each in looks}) == len(looks)
    equal = [Curve("fp32", 0, [1, 10], [0.5, 1]), Curve("int16", 1, [1, 10], [0.5, 1])]
    apart = [equal[0], Curve("bm25", 1, [1, 100], [0.4, 0.9])]
    assert "stroke-width: 5" in draw_curves(equal, "recall", "")  # wider under an equal one
    drawn = draw_curves(apart, "recall", "")
    assert "stroke-width: 5" not in drawn
    assert ">100</text>" in drawn  # the deepest result gives the ticks


def test_the_legend_has_every_name_also_without_letters_for_it() -> None:
    names = ["_one", "two", "__three", "日本語", "हिन्दी"]
    lines = [Curve(name, number, [1, 10], [0.5, 1]) for number, name in enumerate(names)]
    points = [SpeedPoint(name, number, 9, 0.5, 0.4, 0.6) for number, name in enumerate(names)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for drawn in (draw_curves(lines, "recall", ""), draw_speeds(points, "recall", "queries", "")):
            assert all(f">{name}</text>" in drawn for name in names)
