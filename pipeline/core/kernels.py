"""The kernels that libraries multiply matrices with, and those that suit this processor.

A BLAS library chooses its kernels by the model of the processor. One that is older than the processor does
not know it, and OpenBLAS then takes kernels for the Pentium 4 of 2004: Prescott, with SSE3.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path

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


def suited_core() -> str | None:
    """The OpenBLAS kernels that suit this processor; None for a processor that is not an x86 with AVX2."""
    flags = machine.processor_flags()
    if flags.issuperset(AVX512):
        return "SkylakeX"
    return "Haswell" if flags.issuperset(("avx2", "fma")) else None


def loaded_kernels() -> list[Kernels]:
    """The kernels of the libraries that this process has loaded, by name."""
    from threadpoolctl import ThreadpoolController

    names = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS"}
    used, libraries = [], []
    with contextlib.suppress(OSError):  # where the system does not say what is loaded
        libraries = ThreadpoolController().lib_controllers
    for each in (library for library in libraries if library.user_api == "blas"):
        name, path = names.get(each.internal_api, each.internal_api), Path(each.filepath)
        owner = next((owner for part, owner in OWNERS.items() if part in path.parent.name), path.name)
        blas = f"{name} {each.version or ''}".strip()
        core = getattr(each, "architecture", None)
        if ask := getattr(each.dynlib, "openblas_get_corename", None):
            # threadpoolctl remembers what it was told first
            ask.restype = ctypes.c_char_p
            core = ask().decode()
        used.append(Kernels(owner, blas, core or "kernels unknown"))
    if torch := sys.modules.get("torch"):
        blas = "MKL" if torch.backends.mkl.is_available() else "its own BLAS"
        used.append(Kernels("torch", blas, torch.backends.cpu.get_cpu_capability()))
    return sorted(used, key=lambda each: each.library.lower())
