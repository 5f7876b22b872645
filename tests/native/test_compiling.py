"""Kernels are compiled once on a machine, and again when what they are made of has changed."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from numba import config
from numba.core.caching import CacheImpl

from pipeline.core import machine
from pipeline.native import compiling
from pipeline.native.compiling import compiled


def double(x: Any) -> Any:
    return x * 2


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of compiled kernels."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "numba"))
    return tmp_path / "numba"


def hits() -> int:
    """How many kernels come from the cache if one is compiled and called."""
    made = compiled(double)
    assert made(21) == 42
    return sum(made.stats.cache_hits.values())


@pytest.mark.usefixtures("cache")
def test_a_stage_s_seconds_leave_out_what_is_compiled_and_not_what_is_loaded() -> None:
    for is_loaded in (False, True):
        meter = machine.Meter()
        with compiling.compiling():
            assert hits() == is_loaded
        figures = meter.figures()
        assert ("preparing_seconds" in figures) != is_loaded
        assert is_loaded or figures["seconds"] < figures["preparing_seconds"]


def test_work_within_other_work_is_left_out_once() -> None:
    meter = machine.Meter()
    with machine.preparing(), machine.preparing():
        time.sleep(0.02)
    assert meter.figures()["seconds"] >= 0


def test_where_no_folder_can_be_written_it_compiles_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled(double)(21) == 42


def test_where_nothing_can_be_kept_it_computes_all_the_same(cache: Path) -> None:
    made = compiled(double)
    shutil.rmtree(cache)
    cache.touch()
    assert made(21) == 42


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_what_is_kept_damaged_is_compiled_again(ending: str, cache: Path) -> None:
    assert (hits(), hits()) == (0, 1)
    (path,) = cache.rglob(f"*.{ending}")
    path.write_bytes(path.read_bytes()[:9])
    assert (hits(), hits()) == (0, 1)


def test_a_change_of_another_file_that_it_uses_compiles_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.py"
    monkeypatch.setattr(compiling, "_SOURCES", (str(other),))
    for text in ("one", "two and more"):
        other.write_text(text, encoding="utf-8")
        assert (hits(), hits()) == (0, 1)
