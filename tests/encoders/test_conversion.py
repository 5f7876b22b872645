"""The process that converts a model: it runs this project's module, wherever it is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.encoders.conversion import run_in_subprocess


@pytest.mark.parametrize("name", ["pipeline", "json"])
def test_what_lies_in_the_working_directory_is_not_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('another')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    said = run_in_subprocess(
        "pipeline.encoders.native.packing", ["nowhere", "out.npz", "{}"], tmp_path / "out.npz"
    )
    assert said is not None
    assert "pack_model() missing" in said
