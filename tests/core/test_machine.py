"""What a machine says of itself: its GPUs, asked of a driver that is not there or says no."""

import ast
import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.core import Meter, cuda_driver, gpus as find_gpus, hardware


class Driver:
    """Stands for NVIDIA's `libcuda.so.1`, which only a machine with a GPU has."""

    def __init__(self, *names: bytes, failure: int = 0) -> None:
        def answer(place: Any, value: Any) -> int:
            getattr(place, "_obj", place).value = value
            return 0

        self.cuInit = lambda flags: failure
        self.cuDeviceGetCount = lambda count: answer(count, len(names))
        self.cuDeviceGet = answer
        self.cuDriverGetVersion = lambda version: answer(version, 13020)
        self.cuDeviceTotalMem_v2 = lambda memory, device: answer(memory, 80 * 10**9)
        self.cuDeviceGetAttribute = lambda value, attribute, device: answer(value, {75: 9, 76: 0}[attribute])
        self.cuDeviceGetName = lambda name, size, device: answer(name, names[device.value][: size - 1])


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    cached = (cuda_driver, hardware)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


@pytest.mark.parametrize(
    ("driver", "gpus"),
    [
        (Driver(b"NVIDIA H200", b"NVIDIA T4"), ("NVIDIA H200", "NVIDIA T4")),
        (Driver(), ()),
        (Driver(b"NVIDIA T4", failure=100), ()),
        (None, ()),
    ],
    ids=["two", "none", "refused", "no driver"],
)
def test_gpus_are_named(
    monkeypatch: pytest.MonkeyPatch, driver: Driver | None, gpus: tuple[str, ...]
) -> None:
    def load(name: str) -> Driver:
        if driver is None:
            raise OSError(f"{name}: cannot open shared object file")
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert find_gpus() == gpus


def test_cards_and_their_driver_are_in_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(b"NVIDIA H100"))
    card = {"name": "NVIDIA H100", "memory_gb": 80.0, "capability": "9.0"}
    assert hardware()["cuda"] == {"driver": "", "cuda": "13.2", "cards": [card]}


def test_a_stage_s_figures_say_how_torch_used_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "gpu" not in Meter().figures()
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        max_memory_allocated=lambda number: (1 + number) * 10**9,
        reset_peak_memory_stats=lambda number: None,
    )
    version = SimpleNamespace(cuda="13.0")
    torch = SimpleNamespace(cuda=cuda, version=version, get_float32_matmul_precision=lambda: "highest")
    monkeypatch.setitem(sys.modules, "torch", torch)
    used = Meter().figures()["gpu"]
    assert used == {"peak_mb": 2000.0, "cuda": "13.0", "fp32_products": "ieee"}


PORTABLE = {"mmap", "os", "re", "select", "signal", "socket", "sys"}
"""Modules of which only some names are listed."""


def calls(path: Path) -> Iterator[str]:
    """What a module names of the operating system: modules, their members, and folders of Linux."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            of = node.value
            yield node.attr if isinstance(of, ast.Name) and of.id in PORTABLE else ""
            yield node.attr if node.attr in ("prctl", "syscall") else ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^/(?:proc|sys)\b", node.value)


def test_each_call_to_the_operating_system_is_where_the_table_says(root: Path) -> None:
    rows = re.findall(r"^\| `([\w/]+)` \| ([\w/., ]+) \|", (root / "CONTRIBUTING.md").read_text(), re.M)
    table = {call: {*places.split(", ")} for call, places in rows if places.endswith(".py")}
    assert len(table) >= 15
    found: dict[str, set[str]] = {call: set() for call in table}
    for path in (root / "pipeline").rglob("*.py"):
        for call in {*calls(path)} & table.keys():
            found[call].add(path.relative_to(root / "pipeline").as_posix())
    assert found == table
