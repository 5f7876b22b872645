"""The config with every setting as a comment: it runs as it is, and each comment can be made a setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.config import Config
from pipeline.config.files import load_config
from pipeline.config.kinds import kinds_of
from pipeline.config.outline import outline
from pipeline.config.template import config_template


def test_it_loads_and_gives_nothing_but_defaults(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["example", "--template"])
    assert shown.stdout == config_template()
    path = tmp_path / "mine.yaml"
    path.write_text(shown.stdout, encoding="utf-8")
    plain = tmp_path / "plain.yaml"
    plain.write_text(
        "name: mine\ndata: {source: sample}\nmodel: {name: all-minilm-l6-v2}\n", encoding="utf-8"
    )
    assert load_config(path) == load_config(plain)
    assert max(map(len, shown.stdout.splitlines())) <= 110


def test_every_setting_is_in_it_once_with_what_it_is() -> None:
    lines = config_template().splitlines()
    keys = [match[1] for line in lines if (match := re.match(r" *(?:# )?(\w+):", line))]
    assert len(keys) == len(list(outline()))
    for name, field in Config.model_fields.items():
        assert name in keys
        kinds = kinds_of(field)
        assert not kinds or {key for kind in kinds for key in kinds[kind].model_fields} <= set(keys)
    for number, line in enumerate(lines):
        if re.match(r" *(?:# )?\w+:", line):
            assert lines[number - 1].lstrip().startswith("## "), line


@pytest.mark.parametrize("section", ["index", "search", "engine", "evaluate"])
def test_a_section_without_its_hashes_has_the_defaults(section: str) -> None:
    text = re.sub(r"^( *)# (?=\w+:)", r"\1", config_template(), flags=re.MULTILINE)
    written = yaml.safe_load(re.search(rf"^{section}:\n(?:[ ].*\n)+", text, re.MULTILINE)[0])  # type: ignore[index]
    model = type(Config.model_fields[section].default)
    assert model.model_validate(written[section], strict=False) == Config.model_fields[section].default
