"""The page in Chromium, on a desktop and on a phone: it opens, sorts, answers, and asks nobody."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import workplaces
from workplaces import change_json

from pipeline import compare
from pipeline.studies.page import write_page

SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
LONG = [f"a-model-with-a-name-as-long-as-a-sweep-makes-it-{'and-on-' * 5}IVF256-{n}" for n in range(12)]


@pytest.fixture(scope="module")
def pages(results: Path, folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("pages")
    bare = renamed(folders[0], made, "bare")
    change_json(bare / "manifest.json", cache="nowhere", config__cache="nowhere")
    folder = workplaces.run(results, "data.queries=1", "name=single", f"output={made}").folder
    shown = {
        "several": folders,
        "one": folders[1:2],
        "bare": [bare],
        "many": [renamed(folders[0], made, name) for name in LONG],
        "single": [folder, renamed(folder, made, "again")],
    }
    for name, given in shown.items():
        write_page(compare(given, "ndcg@10"), made / f"{name}.html")
    return {name: made / f"{name}.html" for name in shown}


def renamed(folder: Path, place: Path, name: str) -> Path:
    """A copy of a result under another name."""
    copy = Path(shutil.copytree(folder, place / name))
    change_json(copy / "metrics.json", name=name)
    return copy


@pytest.fixture(params=SIZES)
def tab(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """An empty tab; when the test is done, nothing was asked for but the file, and nobody complained."""
    asked: list[str] = []
    complaints: list[str] = []
    context = chromium.new_context(viewport=SIZES[request.param], color_scheme="dark")
    context.add_init_script(  # what is folded first
        "addEventListener('DOMContentLoaded', () => document.querySelector('.rest')?.toggleAttribute('open'))"
    )
    tab = context.new_page()
    tab.on("request", lambda asking: asked.append(asking.url))
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    yield tab
    assert [url for url in asked if not (url.startswith("file:") and url.endswith(".html"))] == []
    assert len(asked) == 1
    assert complaints == []
    context.close()


def fits(tab: Any) -> bool:
    return bool(tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def column(tab: Any, table: str, number: int) -> list[str]:
    found = tab.locator(f"{table} tbody > tr > :nth-child({number})").all_inner_texts()
    return [text.split()[0] for text in found]


def test_leaderboard_sorts_by_any_column(tab: Any, pages: dict[str, Path]) -> None:
    tab.goto(pages["several"].as_uri())
    assert fits(tab)
    table = "#leaderboard table"
    header = tab.locator(f"{table} th", has_text="mean")
    scores = column(tab, table, 2)
    assert scores == sorted(scores, reverse=True)
    assert header.get_attribute("aria-sort") == "descending"
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert column(tab, table, 2) == sorted(scores)
    name = tab.locator(f"{table} th[scope=col]", has_text="result")
    name.locator("button").click()
    assert (name.get_attribute("aria-sort"), header.get_attribute("aria-sort")) == ("ascending", "none")
    assert column(tab, table, 1) == ["five", "three", "whole"]


def test_a_query_opens_to_both_rankings_side_by_side(tab: Any, pages: dict[str, Path]) -> None:
    tab.goto(pages["several"].as_uri())
    first = tab.locator("#list .open").first
    first.click()
    assert first.get_attribute("aria-expanded") == "true"
    cards = tab.locator("#list .side")
    assert [title.split("\n")[0] for title in cards.locator("h3").all_inner_texts()] == ["whole", "five"]
    assert cards.first.locator("ol").first.locator("li").count() == 10
    assert "The top 10 contains" in cards.first.inner_text()
    assert fits(tab)
    # a text runs its own way
    assert first.locator("bdi").count() == 2
    assert first.inner_text() == " ".join(first.locator("bdi").all_inner_texts())
    assert tab.locator("#list .hits p:not([dir=auto])").count() == 0
    assert tab.locator("#list .hits small bdi").count() == tab.locator("#list .hits li").count() > 0
    tab.get_by_role("button", name="Longer passages").click()
    assert tab.locator("tr.detail.full").count() == 1
    first.click()
    assert tab.locator("#list .side").count() == 0


def test_another_pair_can_be_chosen_and_queries_found(tab: Any, pages: dict[str, Path]) -> None:
    tab.goto(pages["several"].as_uri())
    gaps = [float(text.replace("−", "-")) for text in column(tab, "#list", 4)]
    assert gaps == sorted(gaps, reverse=True)
    tab.select_option("#first", label="three")
    assert "three - " in tab.locator("#spread-caption").inner_text()
    assert "no significant difference" in tab.locator("#spread-caption").inner_text()
    tab.locator("#list th[data-by=difference] button").click()
    gaps = [float(text.replace("−", "-")) for text in column(tab, "#list", 4)]
    assert gaps == sorted(gaps)
    tab.fill("#find", "espresso beans to go stale")
    assert tab.locator("#list tbody tr").count() == 1
    tab.fill("#find", "")
    tab.locator("#more").click()
    assert tab.locator("#list tbody tr").count() == 50
    tab.select_option("#second", value="-1")
    assert tab.locator("#list thead th").count() == 2


def test_one_result_and_one_query_have_no_plural(tab: Any, pages: dict[str, Path]) -> None:
    tab.goto(pages["single"].as_uri())
    assert " over 1 query." in tab.locator("#leaderboard caption").inner_text()
    assert tab.locator("#shown").inner_text() == "1 of 1 query."
    assert ": 0 wins, 1 tie, 0 losses; " in tab.locator("#spread-caption").inner_text()


@pytest.mark.parametrize(("page", "told"), [("one", "relevant"), ("bare", "no passages")])
def test_one_result_shows_its_worst_queries_first(
    tab: Any, pages: dict[str, Path], page: str, told: str
) -> None:
    tab.goto(pages[page].as_uri())
    values = [float(text) for text in column(tab, "#list", 2)]
    assert values == sorted(values)
    assert ", lowest first" in tab.locator("#spread-caption").inner_text()
    tab.locator("#list .open").first.click()
    assert tab.locator("#list .side").count() == (page == "one")  # the other is without its collection
    assert told in tab.locator("#list tr.detail").inner_text()
    assert fits(tab)


def test_long_names_fit(tab: Any, pages: dict[str, Path]) -> None:
    tab.goto(pages["many"].as_uri())
    assert fits(tab)
    for plot in tab.locator(".plots svg").all():
        box = plot.bounding_box()
        for text in plot.locator("text").all():
            label = text.bounding_box()
            assert box["x"] <= label["x"]
            assert label["x"] + label["width"] <= box["x"] + box["width"]
    tab.locator(".config summary").first.click()
    assert tab.locator(".config pre").first.evaluate("text => text.scrollWidth <= text.clientWidth")


def test_twelve_results_fit_on_paper_and_marks_stay_in_the_reader_s_colours(
    chromium: Any, pages: dict[str, Path]
) -> None:
    tab = chromium.new_page(viewport={"width": 700, "height": 1000})  # A4 within the margins
    tab.goto(pages["many"].as_uri())
    tab.emulate_media(media="print")
    assert fits(tab)
    tab.goto(pages["several"].as_uri())
    colors = []
    for forced in ("none", "active"):
        tab.emulate_media(media="screen", forced_colors=forced)
        parts = [tab.locator(part).first for part in (".mark", ".lean i")]
        colors.append([part.evaluate("part => getComputedStyle(part).backgroundColor") for part in parts])
    assert colors[0] == colors[1]
    tab.close()
