"""The page as a file: what it holds, that what others wrote stays text, and why a query failed."""

import base64
import hashlib
import html
import json
import re
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workplaces
from comparison.made import single
from inside import resize
from report.tree import tree
from workplaces import change_json, read_json

from pipeline import compare, run_benchmark, write_collection
from pipeline.results import Metrics, read_result, section_tables
from pipeline.studies.page import Hit, explain_query, read_query_data, render_page
from pipeline.studies.shared import draw_svg, result_style


def scripts(page: str) -> list[str]:
    """The content of the script elements: the first one has what the second one shows."""
    return [script.text or "" for script in tree(page).iter("script")]


def shown(page: str) -> dict[str, Any]:
    """What the page's script shows."""
    found: dict[str, Any] = json.loads(scripts(page)[0])
    return found


@pytest.fixture(scope="module")
def several(folders: list[Path]) -> str:
    return render_page(compare(folders, "ndcg@10"))


def test_page_is_whole_and_names_nothing_to_load(several: str) -> None:
    elements = [*tree(several).iter()]
    ids = [each.attrib["id"] for each in elements if "id" in each.attrib]
    assert len(ids) == len(set(ids))
    for each in elements:
        assert each.tag not in ("img", "iframe", "object", "base")
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (each.get(name) or "#")[0] == "#" or each.get(name) == "data:,", each.attrib
    assert not re.search(r"url\((?!#)|@import", several)
    # only its own script may run
    digest = base64.b64encode(hashlib.sha256(scripts(several)[1].encode()).digest()).decode()
    (policy,) = (
        each.attrib["content"] for each in elements if each.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_report_and_compare_write_the_same_page(folders: list[Path], tmp_path: Path) -> None:
    for command in ("report", "compare"):
        workplaces.benchmarco(command, *folders[:2], "--html", tmp_path / command)
    assert (tmp_path / "report").read_bytes() == (tmp_path / "compare").read_bytes()


def test_page_opens_with_a_short_verdict_and_the_queries_that_the_winner_loses(
    several: str, folders: list[Path]
) -> None:
    for given in (folders, folders[:2], folders[:1]):
        compared = compare(given, "ndcg@10")
        assert len(compared.headline.split()) <= 25
        assert ";" not in compared.headline
    compared, page = compare(folders, "ndcg@10"), tree(several)
    assert "".join(page.find(".//h1").itertext()) == f"{compared.headline}."
    table = html.unescape(several.split('id="hardest-caption"')[1].split("</table>")[0])
    best = max(compared.results, key=lambda entry: entry.mean).name
    column = [entry.name for entry in compared.results].index(best)
    lost = compared.values.max(axis=1) - compared.values[:, column]
    worst = shown(several)["texts"][int(lost.argmax())]
    assert f"Queries that {best} loses most by" in table
    assert worst[:40] in table
    assert table.count("<tr>") - 1 == min(5, int((lost > 0).sum()))


def test_plots_take_the_page_s_colours_and_keep_text_as_text(several: str) -> None:
    plots = re.findall(r"<svg.*?</svg>", several, re.DOTALL)
    assert len(plots) == 3
    for plot in plots:
        assert not re.search(r"#[0-9a-f]{6}\b|<style|font-family", plot)
        assert {"var(--series-0)", "var(--series-1)", "var(--series-2)"} <= set(
            re.findall(r"var\(.*?\)", plot)
        )
        assert re.search(r"<text[^>]*>whole</text>", plot)


def test_every_query_and_value_is_there(several: str, folders: list[Path]) -> None:
    one = render_page(compare(folders[:1]))
    assert (shown(one)["names"], shown(one)["pairs"]) == (["whole"], [])
    assert tree(one).find(".//*[@id='pairs']") is None
    compared, data = compare(folders, "ndcg@10"), shown(several)
    assert data["ids"] == compared.query_ids
    assert data["names"] == ["whole", "five", "three"]
    np.testing.assert_allclose(np.array(data["values"]).T, compared.values, atol=5.1e-5)
    assert [pair[3:5] for pair in data["pairs"]] == [[pair.ci_low, pair.ci_high] for pair in compared.pairs]
    assert len(data["details"]) == 114
    for entry in compared.results:
        assert f"{entry.mean:.4f}" in several


def test_without_the_cache_the_page_says_so_and_shows_ids(folders: list[Path], tmp_path: Path) -> None:
    moved = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in folders]
    for folder in moved:
        nowhere = str(tmp_path / "nothing")
        change_json(folder / "manifest.json", cache=nowhere, config__cache=nowhere)
    text = render_page(compare(moved))
    assert f"not in its cache ({tmp_path / 'nothing'})" in text
    data = shown(text)
    assert (data["details"], set(data["texts"]), data["passages"]) == ({}, {""}, {})
    assert data["ids"][0] == "q001"


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)> & {{ 7*7 }} \x1b[2J\x07\x9b"


def test_what_others_wrote_stays_text(workplace: Path) -> None:
    for name in ("corpus", "queries"):
        path = workplace / "data" / f"{name}.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines[0]["text"] = HOSTILE
        path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    result = workplaces.run(workplace, "evaluate.measures=[ndcg@10, judged@10]")
    change_json(result.folder / "manifest.json", config__model__query_instruction=HOSTILE)
    page = render_page(compare([result.folder]))
    assert page.replace("<wbr>", "").count("judged@10</button>") == 1  # a measure has one column
    assert len(scripts(page)) == 2
    assert tree(page).find(".//img") is None
    assert shown(page)["texts"][0] == HOSTILE
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", page)


def test_few_queries_have_their_passages_and_these_are_cut(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a page of ten results of 7,000 queries has some megabytes."""
    resize(monkeypatch, page_rankings=6, page_passage=30)
    data = shown(render_page(compare(folders)))
    assert (len(data["values"]), len(data["ids"])) == (3, 114)
    assert [len(told) for told in data["details"].values()] == [3, 3]
    assert max(map(len, data["passages"].values())) == 30


def test_each_result_has_the_settings_of_its_own_model(finished: Path, tmp_path: Path) -> None:
    """A result of BM25, which has no model, is not described by that of the other result."""
    folder = finished / "results" / "t"
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    change_json(other / "manifest.json", models=[])
    change_json(other / "manifest.json", config__model={"backend": "bm25", "name": ""})
    change_json(other / "metrics.json", name="other")
    alone, both = ({}, {})
    for found, results in ((alone, [folder]), (both, [folder, other])):
        table = tree(render_page(compare(results))).find(".//*[@id='models-caption']/..")
        for name, *cells in table.iter("tr"):
            found["".join(name.itertext())] = ["".join(cell.itertext()) for cell in cells]
    assert alone["model"] == ["bge-small-en-v1.5"]
    assert alone["backend"] == ["openvino (config)"]
    assert both["model"] == ["bge-small-en-v1.5", "bm25"]
    assert both["backend"] == ["openvino (config)", ""]


def ranking(names: str) -> list[tuple[str, float]]:
    """Passages `a`, `b`, … with falling scores."""
    return [(name, 1 - rank / 100) for rank, name in enumerate(names)]


def test_what_is_missed_stands_by_grade_and_then_by_rank() -> None:
    told = explain_query(ranking("abcdefghijklmn"), {"a": 0, "m": 1, "l": 1, "z": 3, "n": 2, "c": 1}, rel=1)
    assert [(hit.passage, hit.rank, hit.grade) for hit in told.missed] == [
        ("z", None, 3), ("n", 14, 2), ("l", 12, 1), ("m", 13, 1)
    ]  # fmt: skip
    assert told.top[0] == Hit("a", 1, 1.0, 0)
    assert told.top[1].grade is None
    assert (told.ranks, told.relevant, told.depth) == ([3, 12, 13, 14], 5, 14)


TOLD = {
    "The first relevant passage is at rank 1. The top 2 contains 1 of 1 relevant passage.": (
        "ab",
        {"a": 1, "b": 0},
    ),
    "The first relevant passage is at rank 4, below 1 judged non-relevant and 2 unjudged. "
    "The top 4 contains 1 of 2 relevant passages. 2 of the top 4 are unjudged.": (
        "abcd",
        {"d": 2, "a": 0, "x": 2},
    ),
    "The only relevant passage is not among the 2 retrieved.": ("ab", {"a": 0, "b": 0, "c": 1}),
    "None of the 2 relevant passages is among the 2 retrieved. 2 of the top 2 are unjudged.": (
        "ab",
        {"c": 1, "d": 1},
    ),
    "No passage is judged relevant.": ("ab", {"a": 0, "b": 0}),
}


def test_why_says_who_stands_above() -> None:
    for why, (names, grades) in TOLD.items():
        assert explain_query(ranking(names), grades, rel=1).why == why
    assert explain_query(ranking("ab"), {"a": 1, "b": 1}, rel=2).why == "No passage is judged relevant."


def test_a_result_without_any_hit_is_explained(tmp_path: Path) -> None:
    data = write_collection(tmp_path / "data", {"p": "apple"}, {"q": "pear"}, {"q": {"p": 1}})
    config = {"name": "none", "data": data, "model": {"backend": "bm25"}, "output": str(tmp_path)}
    result = run_benchmark(config | {"cache": str(tmp_path / "indexes")})
    (examined,) = read_query_data(compare([result.folder])).details
    assert (examined.curves["ndcg"], examined.judged) == ([0], 0)
    assert examined.queries["q"].why == "The only relevant passage is not among the 0 retrieved."


def test_curves_and_ranks_are_those_of_the_result(folders: list[Path]) -> None:
    compared = compare(folders, "ndcg@10")
    data = read_query_data(compared)
    for entry, source, examined in zip(compared.results, compared.sources, data.details, strict=True):
        curve = dict(zip(examined.cutoffs, examined.curves["ndcg"], strict=True))
        assert curve[10] == pytest.approx(entry.mean, abs=1e-12)
        curve = dict(zip(examined.cutoffs, examined.curves["recall"], strict=True))
        assert curve[20] == pytest.approx(source.record.metrics["recall@20"], abs=1e-12)
        assert max(curve) == 50  # search.top_k
        told = examined.queries["q001"]
        first = [hit for hit in workplaces.hits(source.folder) if hit[0] == "q001"][:10]
        assert [(hit.passage, hit.rank) for hit in told.top] == [
            (passage, rank) for rank, (_, passage, _) in enumerate(first, 1)
        ]
        assert [hit.score for hit in told.top] == pytest.approx([score for *_, score in first])
    assert data.queries["q001"] == "how long does it take espresso beans to go stale"


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
    first, second = (read_json(each / "metrics.json") for each in indexed)
    next(row for row in first["stages"] if row["stage"] == "index")["bytes"] = None
    del second["against_exact"]["overlap"]["5"]
    del second["against_exact"]["change"]["mrr@10"]
    compared = compare(
        [
            single(replace(read_result(folder).only_collection(), record=Metrics.model_validate(metrics)))
            for folder, metrics in zip(indexed, (first, second), strict=True)
        ]
    )
    (costs,) = section_tables(compared.records, compared.measure)["Against exact search"]
    names = [column.name for column in costs.columns]
    assert dict(zip(names, costs.rows[0], strict=True))["on disk"] == ""
    assert section(render_page(compared), "against-exact-search").count("<td></td>") == 3


def test_forms_of_other_sizes_are_one_plot_and_a_table(results: Path, folders: list[Path]) -> None:
    settings = ["model.vector_precision=binary", "model.truncate_dim=100", f"output={results}/forms"]
    bits = workplaces.run(results, "name=bits", *settings).folder
    text = section(render_page(compare([folders[0], bits], "ndcg@10")), "quality-against-size")
    assert len(re.findall("<svg", text)) == 1
    assert "bytes<wbr>/passage" in text
    for form, size in (("128 x fp32", 512), ("100 x binary", 13)):
        assert form in text
        assert f'<td data-value="{size}">{size}</td>' in text
    assert section(render_page(compare(folders, "ndcg@10")), "quality-against-size") == ""  # all of one size


def test_lines_of_plots_can_be_told_apart() -> None:
    looks = [result_style(number) for number in range(30)]
    assert len({(each["color"], each["marker"]) for each in looks}) == len(looks)


def test_the_legend_has_every_name_also_without_letters_for_it() -> None:
    names = ["_one", "two", "__three", "日本語", "हिन्दी"]

    def draw(axes: Any) -> list[Any]:
        return [axes.plot([1, 10], [0.5, 1], **result_style(number))[0] for number in range(len(names))]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw_svg(draw, names, "salt", "")
    assert all(f">{name}</text>" in drawn for name in names)
