"""Every command and snippet the README shows, run in its order in a copy of the project."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from pipeline.cli import app

SCRIPTS = {"scripts/quickstart", "scripts/test"}


def blocks(root: Path, language: str) -> list[str]:
    text = (root / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the README's commands read, away from this checkout's results."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(root / "configs", folder / "configs")
    shutil.copytree(root / "pipeline" / "data" / "sample", folder / "pipeline" / "data" / "sample")
    return folder


def run(arguments: list[str]) -> str:
    """The output of a command, which runs in this process."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_commands_and_snippets_run_as_shown(
    root: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # it would keep this test's stderr for ever
    monkeypatch.chdir(copy)
    lines = [line for block in blocks(root, "bash") for line in block.replace("\\\n", " ").splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    assert {command[0] for command in commands} == SCRIPTS | {".venv/bin/benchmarco"}
    outputs = [run(command[1:]) for command in commands if command[0] not in SCRIPTS]
    assert sum("ndcg@10" in output for output in outputs) >= 5
    snippets = blocks(root, "python")
    assert len(snippets) == 1
    exec(snippets[0], {})
    shown = capsys.readouterr().out.splitlines()
    assert float(shown[0]) == pytest.approx(0.8633, abs=5e-4)
    assert "'ndcg@10'" in shown[1]


def test_the_two_scripts_are_there_to_be_run(root: Path) -> None:
    for script in SCRIPTS:
        assert os.access(root / script, os.X_OK)
