"""What a run says at its end can be pasted into a shell, and works."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app

CONFIG = "data: {source: sample, queries: 30}\nmodel: {backend: bm25}\noutput: an output\nname: "


def test_the_commands_after_a_run_work_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(f"{name}.yaml").write_text(CONFIG + name, encoding="utf-8")
    report = "report 'an output/a' --html a.html"
    compare = "compare 'an output/a' 'an output/b'"
    for given, expected in (("a.yaml", [report]), ("a.yaml b.yaml", [compare]), ("a.yaml --quiet", [])):
        done = CliRunner().invoke(app, ["run", *given.split()])
        lines = [line.partition(": benchmarco ")[2] for line in done.stdout.splitlines()]
        assert list(filter(None, lines)) == expected
        for line in expected:
            followed = CliRunner().invoke(app, shlex.split(line))
            assert followed.exit_code == 0, followed.output
