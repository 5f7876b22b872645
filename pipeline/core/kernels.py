"""The kernels that libraries multiply matrices with, and those that suit this processor.

A BLAS library chooses its kernels by the model of the processor. One that is older than the processor does
not know it, and OpenBLAS then takes kernels for the Pentium 4 of 2004: Prescott, with SSE3.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core import machine

AVX512 = ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd")
"""What OpenBLAS's kernels for SkylakeX need, by Linux's names of features."""
OWNERS = {"faiss": "Faiss", "numpy": "NumPy", "scipy": "SciPy"}
"""Libraries by a part of the path of the BLAS that their wheels hold."""


@dataclass(frozen=True)
class Kernels:
    """The matrix kernels of one library in this process."""

    library: str  # whose they are, such as `Faiss`
    blas: str  # what has them, such as `OpenBLAS 0.3.15`
    core: str  # the processor that they are written for, as the BLAS names it, or their instructions

    def __str__(self) -> str:
        return f"{self.library}: {self.blas}, {self.core}"


def suited_core() -> str | None:
    """The OpenBLAS kernels that suit this processor; None for a processor that is not an x86 with AVX2."""
    flags = machine.processor_flags()
    if flags.issuperset(AVX512):
        return "SkylakeX"
    return "Haswell" if flags.issuperset(("avx2", "fma")) else None


def blas_libraries() -> list[Any]:
    """The controllers, of threadpoolctl, of the BLAS libraries that this process has loaded."""
    from threadpoolctl import ThreadpoolController

    try:
        libraries = ThreadpoolController().lib_controllers
    except OSError:  # the system does not say what is loaded
        return []
    return [each for each in libraries if each.user_api == "blas"]


def owner_of(blas: Any) -> str:
    """The library whose wheel holds a BLAS; the name of its file where no wheel does."""
    path = Path(blas.filepath)
    return next((name for part, name in OWNERS.items() if part in path.parent.name), path.name)


def core_of(blas: Any) -> str:
    """The processor that a BLAS's kernels are written for, as it says now; "" if it does not."""
    if hasattr(blas.dynlib, "openblas_get_corename"):  # threadpoolctl remembers what it was told first
        name = blas.dynlib.openblas_get_corename
        name.restype = ctypes.c_char_p
        return str(name().decode())
    return getattr(blas, "architecture", None) or ""


def loaded_kernels() -> list[Kernels]:
    """The kernels of the libraries that this process has loaded, by name."""
    names = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS"}
    used = []
    for each in blas_libraries():
        blas, core = f"{names.get(each.internal_api, each.internal_api)} {each.version or ''}", core_of(each)
        used.append(Kernels(owner_of(each), blas.strip(), core or "kernels unknown"))
    if torch := sys.modules.get("torch"):
        blas = "MKL" if torch.backends.mkl.is_available() else "its own BLAS"
        used.append(Kernels("torch", blas, torch.backends.cpu.get_cpu_capability()))
    return sorted(used, key=lambda each: each.library.lower())
