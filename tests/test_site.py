"""The documentation site: its pages, and that its menu has all of them and no other.

`scripts/site`, which `.ci/run` calls, builds it in strict mode and so checks links between the pages.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import site_pages


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    site_pages.write_pages(folder)
    return folder


def in_menu(entries: list[dict[str, Any]]) -> list[str]:
    """The pages that a menu names, those of its groups among them."""
    found = []
    for entry in entries:
        for value in entry.values():
            found += [value] if isinstance(value, str) else in_menu(value)
    return found


def test_the_menu_has_every_page_of_the_documentation_once(root: Path, pages: Path) -> None:
    settings = tomllib.loads((root / "zensical.toml").read_text(encoding="utf-8"))["project"]
    named = in_menu(settings["nav"])
    written = [path.name for path in pages.glob("*.md")]
    assert sorted(named) == sorted([*written, "configs/index.md"])


def test_links_lead_to_pages_on_the_site() -> None:
    text = "[a](docs/data.md#judgments) [b](configs) [c](#top) `[d](x)` [e](https://f.org)"
    shown, linked = site_pages.relinked(text, "README.md")
    assert shown == "[a](data.md#judgments) [b](configs/index.md) [c](#top) `[d](x)` [e](https://f.org)"
    assert linked == ["docs/data.md", "configs"]
    shown, linked = site_pages.relinked("[a](../configs/x.yaml) [b](../README.md)", "docs/data.md")
    assert shown == "[a](configs/x.yaml.md) [b](index.md)"


def test_a_linked_file_of_the_project_has_a_page(root: Path, pages: Path) -> None:
    shown = (pages / "configs" / "quickstart.yaml.md").read_text(encoding="utf-8")
    assert (root / "configs" / "quickstart.yaml").read_text(encoding="utf-8").rstrip() in shown
    listed = (pages / "configs" / "index.md").read_text(encoding="utf-8")
    assert listed.count("](") == len(list((root / "configs").glob("*.yaml")))


def test_the_page_about_python_has_the_docstrings_of_everything_public(pages: Path) -> None:
    import pipeline

    shown = (pages / "api.md").read_text(encoding="utf-8")
    public = [name for name in pipeline.__all__ if not name.startswith("_")]
    assert [name for name in public if f".{name}\n" not in shown] == []
