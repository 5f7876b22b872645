"""What the page says of approximate indexes: all that the terminal's table says."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.comparison.side_by_side import compare
from pipeline.report.page.render import render_page
from pipeline.results.folder import read_result
from pipeline.results.records import Metrics
from pipeline.results.suite_folder import SavedSuite
from pipeline.results.tables import section_tables


def section(text: str) -> str:
    """What stands on the page under `Against exact search`; nothing where there is no such section."""
    found = re.search(r'<section id="against-exact-search">.*?</section>', text, re.DOTALL)
    return html.unescape(found[0]) if found else ""


def saved(folder: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return metrics


def test_the_plots_are_of_the_indexes_alone(folders: list[Path], indexed: list[Path]) -> None:
    text = render_page(compare([folders[0], *indexed], "mrr@10"))
    assert '<a href="#against-exact-search">' in text
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    plots = re.findall(r"<svg.*?</svg>", section(text), re.DOTALL)
    assert [re.findall(r">(overlap@5|change of mrr@10)</text>", plot) for plot in plots] == [
        ["overlap@5"],
        ["change of mrr@10"],
    ]
    for plot in plots:
        assert all(f">{folder.name}</text>" in plot for folder in indexed)
        assert f">{folders[0].name}</text>" not in plot


def test_a_figure_that_one_index_lacks_leaves_its_cell_empty(indexed: list[Path]) -> None:
    first, second = (saved(folder) for folder in indexed)
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
    shown = section(render_page(compared))
    assert shown.count("<td></td>") == 3
