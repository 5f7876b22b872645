"""What a machine says of itself: its GPUs, asked of a driver that is not there or says no."""

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.core import gpus as find_gpus


class Driver:
    """Stands for NVIDIA's `libcuda.so.1`, which only a machine with a GPU has."""

    def __init__(self, *names: bytes, failure: int = 0) -> None:
        def answer(place: Any, value: Any) -> int:
            getattr(place, "_obj", place).value = value
            return 0

        self.cuInit = lambda flags: failure
        self.cuDeviceGetCount = lambda count: answer(count, len(names))
        self.cuDeviceGet = answer
        self.cuDeviceGetName = lambda name, size, device: answer(name, names[device.value][: size - 1])


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    find_gpus.cache_clear()
    yield
    find_gpus.cache_clear()


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
