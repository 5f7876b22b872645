"""What the page says of forms of vectors: bytes of a passage, speed of the search, and quality."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.api import run_benchmark
from pipeline.comparison.side_by_side import compare
from pipeline.config.files import load_config
from pipeline.report.page.render import render_page


def section(text: str) -> str:
    found = re.search(r'<section id="quality-against-size">.*?</section>', text, re.DOTALL)
    return found[0] if found else ""


def test_forms_of_other_sizes_are_one_plot_and_a_table(results: Path, folders: list[Path]) -> None:
    where = [f"cache={results}/indexes", f"output={results}/forms", "name=bits"]
    settings = ["model.vector_precision=binary", "model.truncate_dim=100"]
    bits = run_benchmark(load_config(results / "c.yaml", [*where, *settings])).folder
    text = render_page(compare([folders[0], bits], "ndcg@10"))
    shown = section(text)
    assert '<a href="#quality-against-size">' in text
    assert len(re.findall("<svg", shown)) == 1
    assert "bytes a passage" in shown
    for form, size in (("128 x fp32", 512), ("100 x binary", 13)):
        assert form in shown
        assert f'<td data-value="{size}">{size}</td>' in shown


def test_forms_of_one_size_have_no_section(folders: list[Path]) -> None:
    text = render_page(compare(folders, "ndcg@10"))
    assert section(text) == ""
    assert "#quality-against-size" not in text
