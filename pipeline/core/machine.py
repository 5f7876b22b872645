"""The cost of a stage (time, memory) and the machine it ran on (hardware, versions), for the record."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from pipeline.core.installation import DISTRIBUTION, installed_version, required_packages

if TYPE_CHECKING:
    from pipeline.core.records import JsonObject  # it imports NumPy, for which no command waits

INDIRECT = ("faiss-gpu", "faiss-gpu-cu12", "faiss-gpu-cuvs", "llvmlite")
"""Packages that affect results and are not required by name: Faiss for GPUs, and Numba's compiler."""

LAZY = ("multiprocessing.synchronize", "numpy.ma", "numpy.random")
"""Modules that libraries import in the middle of their work: tqdm to make a lock, `numpy.unique` to look for
masked arrays, and NumPy when its random numbers are first used."""


FEATURES = (
    "avx2", "fma", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16",
    "asimddp", "i8mm", "sve",
)  # fmt: skip
"""Features of processors, by Linux's names, that decide how fast the backends multiply."""


class _PreparationTime:
    """How long models were packed or converted, and kernels compiled, in this process."""

    seconds = 0.0


_prepared = _PreparationTime()


@contextlib.contextmanager
def preparing(was_needed: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Context of one-time work: meters report its time separately from a stage's seconds.

    Args:
        was_needed: Called after the block; the time counts only if it returns True, so not where the result
            was loaded from disk.
    """
    started = time.perf_counter()
    yield
    if was_needed():
        _prepared.seconds += time.perf_counter() - started


class Meter:
    """Measures one stage, from the creation of this object on."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._prepared = _prepared.seconds
        self._working = 0.0
        self._items = self._worked_on = 0
        self._notes: JsonObject = {}
        self._stopped: tuple[float, float] | None = None
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # resets the kernel's record of the most memory this process held, VmHWM

    @contextlib.contextmanager
    def working(self, *modules: str) -> Iterator[None]:
        """Around the work that `items_per_second` counts, which leaves out loading and writing.

        Args:
            modules: Those that the work imports on first use. They are imported before the time is taken, as
                are those of `LAZY`, so that a rate does not depend on what the process did earlier.
        """
        for module in (*LAZY, *modules):
            importlib.import_module(module)
        started = time.perf_counter()
        yield
        self._working += time.perf_counter() - started

    def count(self, items: int, worked: int | None = None) -> None:
        """Set the number of items in the result, and of those worked on now (None: all of them)."""
        self._items = items
        self._worked_on = items if worked is None else worked

    def note(self, name: str, value: object) -> None:
        """Record something else about how the result was made."""
        self._notes[name] = value

    def stop(self) -> None:
        """End the measurement, before work that is not the stage's own, such as timing an index."""
        self._stopped = time.perf_counter(), _status_mb("VmHWM")

    def figures(self) -> JsonObject:
        """Seconds of the stage and of its work, items, items per second of work, peak memory, notes.

        The rate is None where no item was worked on.
        """
        if self._stopped is None:
            self.stop()
        assert self._stopped is not None
        ended, peak = self._stopped
        preparing = _prepared.seconds - self._prepared
        seconds = ended - self._started - preparing
        busy = self._working or seconds
        return {
            "seconds": round(seconds, 3),
            **({"preparing_seconds": round(preparing, 3)} if preparing else {}),
            "items": self._items,
            "working_seconds": round(busy, 6),
            "items_per_second": round(self._worked_on / busy, 2) if self._worked_on else None,
            "peak_rss_mb": round(peak, 1),
            **self._notes,
        }


@cache
def versions() -> dict[str, str]:
    """Versions of Python, of this package, and of those that it runs with and that are installed."""
    named = (DISTRIBUTION, *required_packages(), *INDIRECT)
    found = {name: version for name in named if (version := installed_version(name))}
    return {"python": platform.python_version(), **found}


@cache
def gpus() -> tuple[str, ...]:
    """Names of the CUDA devices, from the driver itself, so that torch need not be imported."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int(0)
    failed = driver.cuInit(0)
    failed = failed or driver.cuDeviceGetCount(ctypes.byref(count))
    return () if failed else tuple(_gpu_name(driver, number) for number in range(count.value))


def _gpu_name(driver: ctypes.CDLL, number: int) -> str:
    device = ctypes.c_int(0)
    name = ctypes.create_string_buffer(256)
    failed = driver.cuDeviceGet(ctypes.byref(device), number)
    failed = failed or driver.cuDeviceGetName(name, 256, device)
    return "a GPU without a name" if failed else name.value.decode(errors="replace")


def cores() -> int:
    """Number of processor cores this process may use; all of them, if the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_allowed() -> int | None:
    """Number of threads that OMP_NUM_THREADS allows; None if it is not set."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) or None if setting.isdecimal() else None


def threads() -> int:
    """Number of threads that libraries use unless a setting says otherwise."""
    return threads_allowed() or cores()


@cache
def hardware() -> JsonObject:
    """The processor's name, cores (see `cores`), memory in GB, names of the GPUs, operating system."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return {
        "cpu": _cpu_name(),
        "cores": cores(),
        "gpus": list(gpus()),
        "memory_gb": round(memory, 1),
        "system": platform.platform(),
    }


def processor_features() -> list[str]:
    """Those of `FEATURES` that this processor has; none where the system does not list them."""
    flags = (_cpu_info("flags") or _cpu_info("Features")).split()
    return [name for name in FEATURES if name in flags]


@cache
def has_vnni() -> bool:
    """Whether the processor multiplies and adds pairs of int16, or four int8, in one instruction.

    On Linux this is read from /proc/cpuinfo. Elsewhere LLVM is asked, which takes time to load.
    """
    flags = _cpu_info("flags").split()
    if flags:
        return not {"avx512_vnni", "avx_vnni"}.isdisjoint(flags)
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return any(features.get(name) for name in ("avx512vnni", "avxvnni"))


_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18  # a system call of Linux, and what it is asked for


@cache
def has_amx() -> bool:
    """Whether this process may multiply tiles of bytes with AMX.

    Linux gives a process the memory for tiles on request, once for all its threads. It is asked here, and may
    refuse: some containers forbid the call.
    """
    if platform.machine() != "x86_64" or "amx_int8" not in processor_features():
        return False
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA)
    return refused == 0


def _cpu_name() -> str:
    return _cpu_info("model name") or platform.processor() or platform.machine()


def _cpu_info(field: str) -> str:
    """What Linux says of the first core; "" if it does not."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(field):
                return line.partition(":")[2].strip()
    return ""


def resident_mb() -> float:
    """Memory held now, in 10^6 bytes; the most held so far, if the system does not say."""
    return _status_mb("VmRSS")


def _status_mb(field: str) -> float:
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(field):
                return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
