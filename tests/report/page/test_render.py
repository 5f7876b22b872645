"""The page as a file: what it holds, how big it is, and that what others wrote stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pipeline import compare, load_config, run_benchmark
from pipeline.cli import app
from pipeline.report.page import queries
from pipeline.report.page.render import render_page
from pipeline.report.page.sentences import facts


class Reader(HTMLParser):
    """What a page is made of.

    Attributes:
        elements: Name and attributes of each, in order.
        scripts: Content of the script elements.
        open: Elements not closed yet; void ones are not kept.
    """

    void = ("meta", "link", "input", "br", "wbr", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script shows."""
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


@pytest.fixture(scope="module")
def several(folders: list[Path]) -> str:
    return render_page(compare(folders, "ndcg@10"))


def test_page_is_whole_and_names_nothing_to_load(several: str) -> None:
    read = Reader(several)
    assert read.open == []
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in read.elements:
        assert tag not in ("img", "iframe", "object", "base")
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (attributes.get(name) or "#")[0] == "#" or attributes[name] == "data:,", (tag, attributes)
    assert not re.search(r"url\((?!#)|@import", several)
    # only its own script may run
    digest = base64.b64encode(hashlib.sha256(read.scripts[1].encode()).digest()).decode()
    (policy,) = (
        attributes["content"] or ""
        for _, attributes in read.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_plots_take_the_page_s_colours_and_keep_text_as_text(several: str) -> None:
    plots = re.findall(r"<svg.*?</svg>", several, re.DOTALL)
    assert len(plots) == 4
    for plot in plots:
        assert not re.search(r"#[0-9a-f]{6}\b|<style|font-family", plot)
        assert {"var(--series-0)", "var(--series-1)", "var(--series-2)"} <= set(
            re.findall(r"var\(.*?\)", plot)
        )
        assert re.search(r"<text[^>]*>whole</text>", plot)


def test_every_query_and_value_is_there(several: str, folders: list[Path]) -> None:
    compared, data = compare(folders, "ndcg@10"), Reader(several).data
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
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        manifest["config"]["cache"] = str(tmp_path / "nothing")
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    text = render_page(compare(moved))
    assert f"not in its cache ({tmp_path / 'nothing'})" in text
    data = Reader(text).data
    assert (data["details"], set(data["texts"]), data["passages"]) == ({}, {""}, [])
    assert data["ids"][0] == "q001"


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)> & {{ 7*7 }}"


def test_what_others_wrote_stays_text(workplace: Path) -> None:
    for name in ("corpus", "queries"):
        path = workplace / "data" / f"{name}.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines[0]["text"] = HOSTILE
        path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    settings = [f"cache={workplace}/indexes", f"output={workplace}/results"]
    settings.append("evaluate.measures=[ndcg@10, judged@10]")
    result = run_benchmark(load_config(workplace / "c.yaml", settings))
    manifest = json.loads((result.folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["config"]["model"]["query_instruction"] = HOSTILE
    (result.folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    page = render_page(compare([result.folder]))
    assert page.replace("<wbr>", "").count("judged@10</button>") == 1  # a measure has one column
    read = Reader(page)
    assert len(read.scripts) == 2
    assert read.open == []
    assert "img" not in [tag for tag, _ in read.elements]
    assert read.data["texts"][0] == HOSTILE


def test_commands_write_the_page(folders: list[Path], tmp_path: Path) -> None:
    run = CliRunner().invoke
    one, many = tmp_path / "one.html", tmp_path / "many.html"
    assert run(app, ["report", str(folders[0]), "--html", str(one)]).exit_code == 0
    read = Reader(one.read_text(encoding="utf-8"))
    assert (read.data["names"], read.data["pairs"]) == (["whole"], [])
    assert not any(attributes.get("id") == "pairs" for _, attributes in read.elements)
    done = run(app, ["compare", *map(str, folders), "--measure", "RR@10", "--html", str(many), "--json"])
    assert json.loads(done.stdout)["measure"] == "mrr@10"
    assert Reader(many.read_text(encoding="utf-8")).data["measure"] == "mrr@10"
    for folder, page in ((tmp_path, "no.html"), (folders[0], "no/a.html")):
        assert run(app, ["report", str(folder), "--html", str(tmp_path / page)]).exit_code == 2
    assert {path.name for path in tmp_path.iterdir()} == {"one.html", "many.html"}


def test_few_queries_have_their_passages_and_these_are_cut(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a page of ten results of 7,000 queries has some megabytes."""
    monkeypatch.setattr(queries, "RANKINGS", 6)
    monkeypatch.setattr(queries, "PASSAGE_LENGTH", 30)
    data = Reader(render_page(compare(folders))).data
    assert (len(data["values"]), len(data["ids"])) == (3, 114)
    assert [len(told) for told in data["details"].values()] == [3, 3]
    assert max(len(passage) for _, passage in data["passages"]) == 30


def test_the_head_says_whose_model_it_describes(finished: Path, tmp_path: Path) -> None:
    """A result of BM25, which has no model, is not described by that of the other result."""
    folder = finished / "results" / "t"
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    for name, change in (("manifest.json", {"models": []}), ("metrics.json", {"name": "other"})):
        content = json.loads((other / name).read_text(encoding="utf-8")) | change
        (other / name).write_text(json.dumps(content), encoding="utf-8")
    alone, both = (dict(facts(compare(each))) for each in ([folder], [folder, other]))
    assert alone["backend"] == "openvino (config)"
    assert both["backend"] == "t: openvino (config)"
    assert both["queries"] == alone["queries"]
