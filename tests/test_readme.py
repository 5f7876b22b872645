"""Commands and snippets of the README, and commands of docs/, run in their order in a copy of the project."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from chat_server import ChatServer
from huggingface_hub import constants
from typer.testing import CliRunner

from pipeline.cli import app

pytestmark = pytest.mark.usefixtures("quick_conversion")

SCRIPTS = {"scripts/quickstart", "scripts/test"}
BROUGHT = re.compile(r"results/(A|B|new|minilm)\b|\.trec|configs/(dl19|msmarco|served)|results/dl19")
"""What commands in docs/ name that a reader has, that is too large for a test, or needs another PyTorch."""
OTHERS = ("first-decision", "how-do-i", "judge", "releasing")
"""Pages with a test of their own, or of commands that nobody tries."""
SLOW = ("reproduce",)
"""Commands that compute everything anew; `tests/test_how_do_i.py` runs them with a small model."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """The words of each command in a page's blocks."""
    lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the README's commands read, away from this checkout's results."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(root / "configs", folder / "configs")
    shutil.copytree(root / "pipeline" / "data" / "sample", folder / "pipeline" / "data" / "sample")
    return folder


@pytest.fixture(autouse=True)
def _in_the_copy(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # it would keep this test's stderr for ever
    monkeypatch.chdir(copy)


def run(arguments: list[str]) -> str:
    """The output of a command, which runs in this process."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_commands_and_snippets_run_as_shown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = commands(root / "README.md")
    assert {command[0] for command in shown} == SCRIPTS | {".venv/bin/benchmarco"}
    outputs = [run(command[1:]) for command in shown if command[0] not in SCRIPTS]
    assert sum("ndcg@10" in output for output in outputs) >= 5
    snippets = blocks(root / "README.md", "python")
    assert len(snippets) == 1
    exec(snippets[0], {})
    printed = capsys.readouterr().out.splitlines()
    assert float(printed[0]) == pytest.approx(0.8633, abs=5e-4)
    assert "'ndcg@10'" in printed[1]


def test_commands_of_other_pages_run_as_shown(root: Path) -> None:
    pages = [path for path in sorted((root / "docs").glob("*.md")) if path.stem not in OTHERS]
    shown = [words[1:] for page in pages for words in commands(page) if words[0].endswith("benchmarco")]
    ours = [words for words in shown if words[0] not in SLOW and not BROUGHT.search(" ".join(words))]
    assert len(ours) >= 20
    for words in dict.fromkeys(map(tuple, ours)):
        run(list(words))


def test_the_first_decision_is_made_as_shown(
    root: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = root / "docs" / "first-decision.md"
    monkeypatch.chdir(tmp_path)
    shutil.copytree(copy / "pipeline" / "data" / "sample", "my-data")
    for config in blocks(page, "yaml"):
        Path(config.split()[1]).write_text(config, encoding="utf-8")
    said = " ".join(" ".join(run(words[1:]).split()) for words in commands(page))
    files, *printed = blocks(page, "text")
    assert all(Path(line.split()[0]).is_file() for line in files.splitlines())
    shown = [each for block in printed for each in block.split("\n\n")]
    assert [each for each in shown if " ".join(each.split()) not in said] == []
    assert "--margin 0.01" in page.read_text(encoding="utf-8")
    stricter = [*commands(page)[-1][1:-1], "0.01"]
    undecided = CliRunner().invoke(app, stricter)
    assert undecided.exit_code == 4
    assert "about 300 would decide" in " ".join(undecided.stdout.split())
    assert Path("decision.html").is_file()


def test_systems_without_judgments_are_compared_as_shown(
    root: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = root / "docs" / "judge.md"
    monkeypatch.chdir(tmp_path)
    shutil.copytree(copy / "pipeline" / "data" / "sample", "my-data", ignore=shutil.ignore_patterns("qrels"))
    with contextlib.closing(ChatServer(lambda query, passage: str(len(query.split()) % 3))) as server:
        config = blocks(page, "yaml")[0].replace("http://localhost:8000/v1", server.url)
        Path("a.yaml").write_text(config, encoding="utf-8")
        other = config.replace("name: a\n", "name: b\n").replace("name: all-minilm-l6-v2", "backend: bm25")
        Path("b.yaml").write_text(other, encoding="utf-8")
        for words in commands(page):
            output = run(words[1:])
            if words[1] == "pool":
                header, *rows = Path("pool.tsv").read_text(encoding="utf-8").splitlines()
                place = header.split("\t").index("grade")
                graded = [row.split("\t") for row in rows]
                for row in graded:
                    row[place] = "1"
                lines = [header, *("\t".join(row) for row in graded)]
                Path("pool.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert "people's and judge's" in output
    assert Path("judged.html").is_file()


def test_the_two_scripts_are_there_to_be_run(root: Path) -> None:
    for script in SCRIPTS:
        assert os.access(root / script, os.X_OK)
