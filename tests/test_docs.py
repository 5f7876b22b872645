"""What the documents say is so: links lead somewhere, commands, options and settings exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import document_config
import pytest
import typer.main
import yaml
from pydantic.fields import FieldInfo

from pipeline.cli import app
from pipeline.config import Config
from pipeline.config.files import PROMPTS, load_configs
from pipeline.config.settings import kinds_of
from pipeline.metrics.measures import MEASURES
from pipeline.metrics.names import parse_measure

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "indexes" / "README.md"])
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""Pages about this release; a changelog also names what earlier ones had."""
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")


def names(page: Path) -> str:
    return str(page.relative_to(ROOT))


def settings() -> set[str]:
    """Every `section.key` of the config."""
    known = {".".join(PROMPTS)}
    for name, field in Config.model_fields.items():
        kinds = kinds_of(field)
        for section in [kinds[kind] for kind in kinds] if kinds else [section_of(field)]:
            known |= {f"{name}.{key}" for key in getattr(section, "model_fields", {})}
    return known


def section_of(field: FieldInfo) -> Any:
    """The section that a field of the config always or sometimes holds; None where it holds a value."""
    return document_config.section(field.annotation)


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    linked = [link for link in LINK.findall(text) if "://" not in link[0]]
    assert [file for file, _ in linked if not (page.parent / file).exists()] == []
    to_headings = [(page.parent / file if file else page, heading) for file, heading in linked if heading]
    assert [heading for target, heading in to_headings if heading not in anchors(target)] == []


def anchors(page: Path) -> set[str]:
    """What a link may have after '#': the headings of a page as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", CURRENT, ids=names)
def test_settings_exist(page: Path) -> None:
    sections = "|".join(name for name, field in Config.model_fields.items() if section_of(field))
    said = re.findall(rf"(?:`|--set [\"']?)({sections})\.([a-z_0-9]+)", page.read_text(encoding="utf-8"))
    assert {f"{section}.{key}" for section, key in said} - settings() == set()


@pytest.mark.parametrize("page", CURRENT, ids=names)
def test_commands_and_their_options_exist(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    unknown = []
    for line in commands_on(page):
        words = line.split("#")[0].split()
        command = commands.get(words[0])
        if hasattr(command, "commands") and len(words) > 1:
            command = command.commands.get(words[1])
        options = {name for p in command.params for name in p.opts} | {"--help"} if command else set()
        said = {word.split("=")[0] for word in words if re.fullmatch(r"--[a-z].*", word)}
        unknown += [line] if command is None or said - options else []
    assert unknown == []


def test_commands_are_found_on_the_pages() -> None:
    assert sum(len(commands_on(page)) for page in CURRENT) >= 30


def commands_on(page: Path) -> list[str]:
    """What follows `benchmarco` wherever a page shows it as code."""
    return re.findall(r"benchmarco ([a-z]+[^`\n]*)", "\n".join(code(page)))


def code(page: Path) -> list[str]:
    """Code blocks and spans of a page."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks = [body for language, body in fences if language in ("", "bash")]
    return [*blocks, *re.findall(r"`(benchmarco [^`\n]+)`", text)]


def test_the_page_of_settings_is_the_config_s_own() -> None:
    page = document_config.page()
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == page, (
        "docs/configuration.md is old: run scripts/document_config.py"
    )


def test_measures_that_are_explained_can_be_asked_for() -> None:
    text = (ROOT / "docs/measures.md").read_text(encoding="utf-8")
    said = re.findall(r"^\| (`[a-z_]+(?:\([^)]*\))?(?:@k)?`[^|]*)\|", text, re.MULTILINE)
    names = [name for cell in said for name in re.findall(r"`([^`]+)`", cell) if "=N" not in name]
    assert len(names) > 10
    explained = {parse_measure(name.replace("@k", "@10")).name for name in names}
    assert explained == set(MEASURES)


@pytest.mark.parametrize("config", sorted(ROOT.glob("configs/*.yaml")), ids=names)
def test_a_config_whose_data_is_elsewhere_says_how_to_get_it(config: Path) -> None:
    text = config.read_text(encoding="utf-8")
    overrides = re.findall(r"--set (data\.\S+)", "".join(re.findall(r"^#.*$", text, re.MULTILINE)))
    assert bool(overrides) == ("../../shared/data" in text)
    if overrides:
        made = load_configs([config], overrides)
        assert {each.data.source for each in made} == {"ir_datasets"}


@pytest.mark.parametrize("page", [page for page in PAGES if "```yaml" in page.read_text("utf-8")], ids=names)
def test_configs_on_the_pages_are_accepted(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        shown = yaml.safe_load(block)
        if "collections" in shown:  # a suite's own file
            (tmp_path / f"suite-{number}.yaml").write_text(block, encoding="utf-8")
            shown = {"data": {"suite": f"suite-{number}.yaml"}}
        whole = {"name": "shown", "data": {"source": "sample"}, **shown}
        if "fuse" not in whole and not any("fuse" in each for each in whole.get("sweep", ())):
            model = whole.get("model", {})
            whole["model"] = model if "backend" in model else {"name": "all-minilm-l6-v2", **model}
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(whole), encoding="utf-8")
        assert load_configs([file]), block
