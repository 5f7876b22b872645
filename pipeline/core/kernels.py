"""The kernels that libraries in this process multiply matrices with."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path

OWNERS = {"faiss": "Faiss", "numpy": "NumPy", "scipy": "SciPy"}
"""Libraries by a part of the path of the BLAS that their wheels hold."""


@dataclass(frozen=True)
class Kernels:
    """The matrix kernels of one library in this process."""

    library: str  # whose they are, such as `Faiss`
    blas: str  # what has them, such as `OpenBLAS 0.3.15`
    core: str  # the processor that they are written for, as the BLAS names it, or their instructions


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
