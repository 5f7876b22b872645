"""Kernels are compiled once on a machine, and again when what they are made of has changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from numba import config
from numba.core.caching import CacheImpl

from pipeline.native import compiling
from pipeline.native.compiling import compiled


def test_where_no_folder_can_be_written_it_compiles_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])

    def double(x: Any) -> Any:
        return x * 2

    assert compiled(double)(21) == 42


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_what_is_kept_damaged_is_compiled_again(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))

    def double(x: Any) -> Any:
        return x * 2

    assert compiled(double)(21) == 42
    (path,) = tmp_path.rglob(f"*.{ending}")
    path.write_bytes(path.read_bytes()[:9])
    for hits in (0, 1):
        again = compiled(double)
        assert again(21) == 42
        assert sum(again.stats.cache_hits.values()) == hits


def test_where_nothing_can_be_kept_it_computes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "numba"))
    double = compiled(lambda x: x * 2)
    shutil.rmtree(tmp_path / "numba")
    (tmp_path / "numba").touch()
    assert double(21) == 42


def test_a_change_of_another_file_that_it_uses_compiles_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "numba"))

    def double(x: Any) -> Any:
        return x * 2

    other = tmp_path / "other.py"
    monkeypatch.setattr(compiling, "_SOURCES", (str(other),))
    for text, hits in [("one", 0), ("one", 1), ("two and more", 0)]:
        if not other.exists() or other.read_text(encoding="utf-8") != text:
            other.write_text(text, encoding="utf-8")
        made = compiled(double)
        assert made(21) == 42
        assert sum(made.stats.cache_hits.values()) == hits
