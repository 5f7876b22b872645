"""What the documents say is so: commands, options and settings exist, and the site has every page.

`scripts/site`, which `.ci/run` calls, builds the site in strict mode and so checks every link.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import document_config
import pytest
import site_pages
import typer.main
import yaml

import pipeline
from pipeline import load_configs
from pipeline.cli import app
from pipeline.config import Config, section_of
from pipeline.metrics import MEASURES, parse_measure

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "indexes" / "README.md"])
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
CURRENT = {name: text for name, text in PAGES.items() if name != "CHANGELOG.md"}
"""Pages about this release; a changelog also names what earlier ones had."""


def test_settings_exist() -> None:
    known, names = set(), []
    for name, field in Config.model_fields.items():
        section: Any = document_config.section(field.annotation)  # None where the field holds a value
        names += [name] if section else []
        kinds = section_of(field)[1]
        for each in kinds.all().values() if kinds else [section]:
            known |= {f"{name}.{key}" for key in getattr(each, "model_fields", {})}
    said = re.compile(rf"(?:`|--set [\"']?)((?:{'|'.join(names)})\.[a-z_0-9]+)")
    shown = [(page, each) for page, text in CURRENT.items() for each in said.findall(text)]
    assert [(page, each) for page, each in shown if each not in known] == []


def commands_on(page: str) -> list[str]:
    """What follows `benchmarco` wherever a page shows it as code."""
    text = page.replace("\\\n", " ")
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks = [body for language, body in fences if language in ("", "bash")]
    code = [*blocks, *re.findall(r"`(benchmarco [^`\n]+)`", text)]
    return re.findall(r"benchmarco ([a-z]+[^`\n]*)", "\n".join(code))


def test_commands_and_their_options_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = [(name, line) for name, text in CURRENT.items() for line in commands_on(text)]
    assert len(shown) >= 30
    unknown = []
    for name, line in shown:
        words = line.split("#")[0].split()
        command = commands.get(words[0])
        if hasattr(command, "commands") and len(words) > 1:
            command = command.commands.get(words[1])
        options = {name for p in command.params for name in p.opts} | {"--help"} if command else set()
        said = {word.split("=")[0] for word in words if re.fullmatch(r"--[a-z].*", word)}
        unknown += [(name, line)] if command is None or said - options else []
    assert unknown == []


def test_the_page_of_settings_is_the_config_s_own() -> None:
    assert PAGES["docs/configuration.md"] == document_config.page(), "run scripts/document_config.py"


def test_measures_that_are_explained_can_be_asked_for() -> None:
    text = PAGES["docs/measures.md"]
    said = re.findall(r"^\| (`[a-z_]+(?:\([^)]*\))?(?:@k)?`[^|]*)\|", text, re.MULTILINE)
    names = [name for cell in said for name in re.findall(r"`([^`]+)`", cell) if "=N" not in name]
    assert len(names) > 10
    explained = {parse_measure(name.replace("@k", "@10")).name for name in names}
    assert explained == set(MEASURES)


def test_shipped_configs_are_accepted_and_those_whose_data_is_elsewhere_say_how_to_get_it() -> None:
    for config in ROOT.glob("configs/*.yaml"):
        assert load_configs([config]), config
        text = config.read_text(encoding="utf-8")
        overrides = re.findall(r"--set (data\.\S+)", "".join(re.findall(r"^#.*$", text, re.MULTILINE)))
        assert bool(overrides) == ("../../shared/data" in text), config
        if overrides:
            assert {each.data.source for each in load_configs([config], overrides)} == {"ir_datasets"}


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if "```yaml" in text])
def test_configs_on_the_pages_are_accepted(name: str, tmp_path: Path) -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```$", PAGES[name], re.MULTILINE | re.DOTALL):
        shown = yaml.safe_load(block)
        if "jobs" in shown:  # a workflow
            continue
        if "collections" in shown:  # a suite's own file
            (tmp_path / "suite.yaml").write_text(block, encoding="utf-8")
            shown = {"data": {"suite": "suite.yaml"}}
        whole = {"name": "shown", "data": {"source": "sample"}, **shown}
        if "fuse" not in whole and not any("fuse" in each for each in whole.get("sweep", ())):
            model = whole.get("model", {})
            whole["model"] = model if "backend" in model else {"name": "all-minilm-l6-v2", **model}
        file = tmp_path / "c.yaml"
        file.write_text(yaml.safe_dump(whole), encoding="utf-8")
        assert load_configs([file]), block


def in_menu(entries: list[dict[str, Any]]) -> list[str]:
    """The pages that a menu names, those of its groups among them."""
    values = [value for entry in entries for value in entry.values()]
    return [page for value in values for page in ([value] if isinstance(value, str) else in_menu(value))]


def test_links_lead_to_pages_on_the_site() -> None:
    text = "[a](docs/data.md#judgments) [b](configs) [c](#top) `[d](x)` [e](https://f.org)"
    shown, linked = site_pages.relinked(text, "README.md")
    assert shown == "[a](data.md#judgments) [b](configs/index.md) [c](#top) `[d](x)` [e](https://f.org)"
    assert linked == ["docs/data.md", "configs"]
    shown, linked = site_pages.relinked("[a](../configs/x.yaml) [b](../README.md)", "docs/data.md")
    assert shown == "[a](configs/x.yaml.md) [b](index.md)"


def test_the_pages_are_those_of_the_menu_the_linked_files_and_everything_public(
    tmp_path: Path,
) -> None:
    pages = tmp_path / "pages"
    site_pages.write_pages(pages)
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    written = [path.name for path in pages.glob("*.md")]
    assert sorted(in_menu(settings["nav"])) == sorted([*written, "configs/index.md"])
    shown = (pages / "configs" / "quickstart.yaml.md").read_text(encoding="utf-8")
    assert (ROOT / "configs" / "quickstart.yaml").read_text(encoding="utf-8").rstrip() in shown
    listed = (pages / "configs" / "index.md").read_text(encoding="utf-8")
    assert listed.count("](") == len(list((ROOT / "configs").glob("*.yaml")))
    about_python = (pages / "api.md").read_text(encoding="utf-8")
    public = [name for name in pipeline.__all__ if not name.startswith("_")]
    assert [name for name in public if f".{name}\n" not in about_python] == []
