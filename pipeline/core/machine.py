"""The cost of a stage (time, memory) and the machine that it ran on, for the record."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import mmap
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.core.records import Array, Facts, JsonObject  # it imports NumPy, for which no command waits

LAZY = ("multiprocessing.synchronize", "numpy.ma", "numpy.random")
"""Modules that libraries import in the middle of their work: tqdm to make a lock, `numpy.unique` to look for
masked arrays, and NumPy when its random numbers are first used."""

FEATURES = (
    "avx2", "fma", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16",
    "asimddp", "i8mm", "sve",
)  # fmt: skip
"""Features of processors, by Linux's names, that decide how fast the backends multiply."""

_prepared = SimpleNamespace(seconds=0.0)
"""How long models were packed or converted, and kernels compiled, in this process."""


@contextlib.contextmanager
def preparing(was_needed: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Context of one-time work: meters report its time separately from a stage's seconds.

    Args:
        was_needed: Called after the block; the time counts only if it returns True, so not where the result
            was loaded from disk.
    """
    before, started = _prepared.seconds, time.perf_counter()
    yield
    if was_needed():  # a block inside this one has counted a part already
        _prepared.seconds = before + time.perf_counter() - started


class Meter:
    """Measures one stage, from the creation of this object on."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._prepared = _prepared.seconds
        self._working = 0.0
        self.items = 0  # how many are in the result
        self.worked_on: int | None = None  # how many of them now; None is all
        self.notes: JsonObject = {}  # what else is recorded of how the result was made
        _gpu_use()  # from here on
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # resets the kernel's record of the most memory this process held, VmHWM

    @contextlib.contextmanager
    def working(self, *modules: str) -> Iterator[None]:
        """Around the work that `items_per_second` counts, which leaves out loading and writing.

        `LAZY` and the `modules` that the work needs are imported before: the rate does not hold imports.
        """
        for module in (*LAZY, *modules):
            importlib.import_module(module)
        started = time.perf_counter()
        yield
        self._working += time.perf_counter() - started

    def figures(self) -> JsonObject:
        """What the stage took, in the terms of `StageRow`, and the notes."""
        preparing = _prepared.seconds - self._prepared
        seconds = time.perf_counter() - self._started - preparing
        busy = self._working or seconds
        worked_on = self.items if self.worked_on is None else self.worked_on
        return {
            "seconds": round(seconds, 3),
            **({"preparing_seconds": round(preparing, 3)} if preparing else {}),
            "items": self.items,
            "working_seconds": round(busy, 6),
            "items_per_second": round(worked_on / busy, 2) if worked_on else None,
            "peak_rss_mb": round(resident_mb("VmHWM"), 1),
            **({"gpu": gpu} if (gpu := _gpu_use()) else {}),
            **self.notes,
        }


@cache
def cuda_driver() -> Facts:
    """What the CUDA driver says: the highest CUDA version that it runs, its own, and each card's memory.

    Empty where it lists no card. It is asked itself, so that torch need not be imported.
    """
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return {}
    driver.cuDriverGetVersion(ctypes.byref(version))
    cuda_version = f"{version.value // 1000}.{version.value % 1000 // 10}"
    module = re.search(r"\b\d+\.\d+(\.\d+)?\b", _from_proc("driver/nvidia/version", "NVRM version"))
    cards = [_card(driver, number) for number in range(count.value)]
    return {"driver": module.group() if module else "", "cuda": cuda_version, "cards": cards}


_TOTAL, _CAPABILITY = "cuDeviceTotalMem_v2", (75, 76)  # a function and attributes of the CUDA driver


def _card(driver: ctypes.CDLL, number: int) -> JsonObject:
    """The name, memory and compute capability of a GPU."""
    device, memory, parts = ctypes.c_int(0), ctypes.c_size_t(0), [ctypes.c_int(0), ctypes.c_int(0)]
    name = ctypes.create_string_buffer(b"a GPU without a name", 256)
    driver.cuDeviceGet(ctypes.byref(device), number)
    driver.cuDeviceGetName(name, 256, device)
    getattr(driver, _TOTAL)(ctypes.byref(memory), device)
    for part, attribute in zip(parts, _CAPABILITY, strict=True):
        driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device)
    capability = ".".join(str(part.value) for part in parts)
    named = name.value.decode(errors="replace")
    return {"name": named, "memory_gb": round(memory.value / 1e9, 1), "capability": capability}


def gpus() -> tuple[str, ...]:
    """Names of the CUDA devices."""
    return tuple(card["name"] for card in cuda_driver().get("cards", ()))


def _gpu_use() -> JsonObject:
    """How torch has used GPUs since it was asked last: most memory on one, in 10^6 bytes, and its settings.

    These are the CUDA version and the arithmetic of products in fp32, `ieee` or `tf32`. Empty if it has not.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    peak = 0
    for number in range(torch.cuda.device_count()):
        peak = max(peak, torch.cuda.max_memory_allocated(number))
        torch.cuda.reset_peak_memory_stats(number)
    products = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    return {"peak_mb": round(peak / 1e6, 1), "cuda": torch.version.cuda, "fp32_products": products}


def cores() -> int:
    """Number of processor cores this process may use; all of them, if the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads() -> int:
    """Number of threads that libraries use: as OMP_NUM_THREADS says, or else one for each core."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting if setting.isdecimal() else 0) or cores()


def memory_bytes() -> int:
    """The memory that this process may use: the machine's, or less where its container has a limit."""
    whole, limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), ""
    with contextlib.suppress(OSError), open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
        limit = file.read().strip()
    return min(whole, int(limit)) if limit.isdecimal() else whole


VARIABLES = (
    "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES", "NUMBA_NUM_THREADS",
)  # fmt: skip
"""Variables of the environment that choose kernels and threads, which can change the last bits of vectors."""


@cache
def hardware() -> JsonObject:
    """The processor, its `cores`, memory in GB, GPUs, their driver, operating system, and set `VARIABLES`."""
    memory, driver = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), cuda_driver()
    name = _from_proc("cpuinfo", "model name") or platform.processor()
    return {
        "cpu": name or f"{platform.machine()} {_from_proc('cpuinfo', 'CPU part')}".rstrip(),  # as on arm64
        "cores": cores(),
        "gpus": [card["name"] for card in driver.get("cards", ())],
        **({"cuda": driver} if driver else {}),
        "memory_gb": round(memory / 1e9, 1),
        "system": platform.platform(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


@cache
def processor_flags() -> frozenset[str]:
    """The processor's features, by Linux's names; empty where the system does not list them."""
    # an emulator may show the file of another architecture, whose features these are not
    return frozenset(_from_proc("cpuinfo", "flags" if platform.machine() == "x86_64" else "Features").split())


def processor_features() -> list[str]:
    """Those of `FEATURES` that this processor has."""
    return [name for name in FEATURES if name in processor_flags()]


_FAST = {
    "int16": ("avx512_vnni", "avx_vnni"),
    "bf16": ("avx512_bf16", "amx_bf16"),
    "int8": ("avx512_vnni", "avx_vnni", "amx_int8"),
}
"""By precision the features of which an x86 needs one, to compute it faster than fp32."""


def fast_precisions() -> list[str]:
    """The precisions that this processor computes faster than fp32, as far as that is known."""
    return [name for name, features in _FAST.items() if not processor_flags().isdisjoint(features)]


def emulated_precision(precision: str) -> str:
    """Which features this processor lacks, so that a precision is slower than fp32 on it; "" if it is not.

    int8 without them is no slower, and of a processor that is no x86 nothing is known.
    """
    is_x86 = "sse2" in processor_flags()
    slow = is_x86 and precision in ("int16", "bf16") and precision not in fast_precisions()
    return " or ".join(_FAST[precision]) if slow else ""


def _compiles_for_itself() -> bool:
    """Whether Numba compiles for the processor at hand, as it does if no variable says otherwise."""
    named = os.environ.get("NUMBA_CPU_NAME") or os.environ.get("NUMBA_CPU_FEATURES")
    return not named and os.environ.get("NUMBA_ENABLE_AVX") != "0"


def check_compiler() -> None:
    """Refuse to begin where Numba may not compile: the kernels of searches and of `native` are no Python."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        raise InputError(
            f"NUMBA_DISABLE_JIT={os.environ['NUMBA_DISABLE_JIT']} is set, and the kernels of searches are "
            "compiled by Numba",
            fix="unset NUMBA_DISABLE_JIT",
        )


@cache
def has_vnni() -> bool:
    """Whether the processor multiplies and adds pairs of int16, or four int8, in one instruction.

    It is false where the system does not say, and where Numba is told to compile for another processor.
    """
    return _compiles_for_itself() and not {"avx512_vnni", "avx_vnni"}.isdisjoint(processor_flags())


def float_kernels() -> str:
    """How kernels of Numba add up float32 here, which shapes last bits, as `16 lanes`; may import Numba."""
    features: Iterable[str] = processor_flags() if _compiles_for_itself() else ()
    if not features:
        target = importlib.import_module("numba.core.registry").cpu_target.target_context.codegen()
        features = [each[1:] for each in target._get_host_cpu_features().split(",") if each[:1] == "+"]
    fused = {"avx", "fma"}.issubset(features) or platform.machine() in ("aarch64", "arm64")
    return f"{16 if 'avx512f' in features else 8} lanes{'' if fused else ', unfused'}"


_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18  # a system call of Linux, and what it is asked for


@cache
def has_amx() -> bool:
    """Whether this process may multiply tiles of bytes with AMX.

    Linux gives a process the memory for tiles on request, once for all its threads. It is asked here, and may
    refuse: some containers forbid the call.
    """
    if not _compiles_for_itself() or "amx_int8" not in processor_features():
        return False
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA)
    return refused == 0


def _from_proc(name: str, field: str) -> str:
    """What a file of Linux says of a field, that of `cpuinfo` for the first core; "" if it does not."""
    with contextlib.suppress(OSError), open(f"/proc/{name}", encoding="utf-8") as file:
        for line in file:
            if line.startswith(field):
                return line.partition(":")[2].strip()
    return ""


def resident_mb(field: str = "VmRSS") -> float:
    """Memory that this process holds, in 10^6 bytes; with "VmHWM", or on other systems, the most so far."""
    if size := _from_proc("self/status", field):
        return int(size.split()[0]) * 1024 / 1e6
    import resource  # Windows lacks it, and is refused where the store is imported

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def release_pages(rows: Array) -> None:
    """Release the memory of a mapped array, or of consecutive rows of one; the system's cache may keep it."""
    mapped = getattr(rows, "_mmap", None)  # private: numpy.memmap has no public name for it
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        import numpy as np

        start = rows.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, first, start + rows.nbytes - first)


MEMORY_FILES = hasattr(os, "memfd_create")
"""Whether the system has files in memory."""


def nameless_file() -> BinaryIO:
    """A file of no name, in memory or else on the disk."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("benchmarco"), "w+b")
    return tempfile.TemporaryFile()
