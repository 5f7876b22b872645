"""Settings, commands and options of earlier releases are refused with what to use instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.config.files import load_config
from pipeline.core.errors import InputError
from pipeline.core.removed import ANY, COMMANDS, OPTIONS, SETTINGS

PLAIN = "name: x\ndata: {source: sample}\nmodel: {backend: bm25}\n"


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        *(([name], instead) for name, instead in COMMANDS.items()),
        *((list(names), instead) for names, instead in OPTIONS.items()),
    ],
)
def test_a_command_and_an_option_say_what_to_use(arguments: list[str], instead: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert instead in " ".join(done.stderr.split())


@pytest.mark.parametrize(("path", "value", "instead"), SETTINGS)
def test_a_setting_says_what_to_use_and_null_is_accepted(
    path: str, value: object, instead: str, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(PLAIN, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(instead[1:])):
        load_config(config, [f"{path}={1 if value is ANY else value}"])
    if value is ANY:
        load_config(config, [f"{path}=null"])
    part = "name: x\ndata: {source: sample}\n"
    part += "fuse: {of: [{model: {backend: bm25}}, {model: {backend: bm25}}]}\n"
    config.write_text(part, encoding="utf-8")
    if path.partition(".")[0] in ("model", "index", "search", "rerank"):
        with pytest.raises(InputError, match=re.escape(instead[1:])):
            load_config(config, [f"fuse.of.1.{path}={1 if value is ANY else value}"])
