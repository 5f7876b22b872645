"""What a run says at its end can be pasted into a shell, and works."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app

CONFIG = "name: NAME\ndata: {source: sample, queries: 30}\nmodel: {backend: bm25}\noutput: an output\n"


def run(name: str, *options: str) -> list[str]:
    """Run a benchmark of that name, and return the commands that are printed after its result."""
    Path("c.yaml").write_text(CONFIG.replace("NAME", name), encoding="utf-8")
    done = CliRunner().invoke(app, ["run", "c.yaml", *options])
    assert done.exit_code == 0, done.output
    return [
        line.partition(": benchmarco ")[2] for line in done.stdout.splitlines() if ": benchmarco " in line
    ]


def test_the_commands_after_a_run_work_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = run("a")
    assert first == ["report 'an output/a' --html a.html"]
    second = run("b", "--set", "model.k1=1.2")
    assert second == ["report 'an output/b' --html b.html", "compare 'an output/a' 'an output/b'"]
    for line in second:
        done = CliRunner().invoke(app, shlex.split(line))
        assert done.exit_code == 0, done.output
    manifest = json.loads(Path("an output/b/manifest.json").read_text(encoding="utf-8"))
    ended = datetime.fromisoformat(manifest["created"])
    assert timedelta(0) <= datetime.now(UTC) - ended < timedelta(hours=1)
    assert f"{ended:%Y-%m-%d}" in Path("b.html").read_text(encoding="utf-8")
    other = "data.queries=29"  # is of another collection, so that neither can be compared with it
    assert run("c", "--set", other) == ["report 'an output/c' --html c.html"]
    assert run("d", "--quiet") == []
