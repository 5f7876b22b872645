"""Faiss, with kernels of matrix products that suit this processor; other modules take `faiss` from here.

The wheels of Faiss hold an OpenBLAS of 2021. For a processor that it does not know, such as Sapphire Rapids
or Zen 5, it takes the kernels of 2004, and Faiss trains and searches indexes at a third of its speed.
OpenBLAS reads OPENBLAS_CORETYPE when it is loaded; here it reads it once more, for Faiss's library alone.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_LOADED_BEFORE = "faiss" in sys.modules

import faiss as faiss  # noqa: E402
import numpy as np  # noqa: E402

from pipeline.core import kernels  # noqa: E402

VARIABLE = "OPENBLAS_CORETYPE"
SIZES = ((1, 3, 2), (33, 65, 17), (70, 384, 129))
"""Rows, inner and outer dimension of the products that are compared: with and without rests of all blocks."""


def use_suited_kernels() -> None:
    """Give Faiss's OpenBLAS the kernels that suit the processor, where it has older ones.

    A variable that the user has set decides. Kernels whose products differ from NumPy's are not kept: those
    of another processor may be wrong on this one. NumPy's library and the environment stay as they are.
    """
    core = kernels.suited_core()
    blas = next((each for each in kernels.blas_libraries() if kernels.owner_of(each) == "Faiss"), None)
    if VARIABLE in os.environ or core is None or blas is None or blas.internal_api != "openblas":
        return
    if not kernels.is_outdated(kernels.core_of(blas)) or not hasattr(blas.dynlib, "gotoblas_dynamic_quit"):
        return
    _choose(blas.dynlib, core)
    if not products_agree():
        _choose(blas.dynlib, None)


def _choose(library: Any, core: str | None) -> None:
    """Let an OpenBLAS choose kernels again, those for `core`; None leaves the choice to it.

    No other thread may use the library meanwhile.
    """
    if core:
        os.environ[VARIABLE] = core
    try:
        library.gotoblas_dynamic_quit()
        library.gotoblas_dynamic_init()
    finally:
        os.environ.pop(VARIABLE, None)


def products_agree() -> bool:
    """Whether Faiss's products of small matrices are those of NumPy, to what float32 sums may differ."""
    random = np.random.default_rng(0)
    for rows, inner, outer in SIZES:
        matrix = random.standard_normal((outer, inner), np.float32)
        transform = faiss.LinearTransform(inner, outer)
        faiss.copy_array_to_vector(matrix.ravel(), transform.A)
        transform.is_trained = transform.is_orthonormal = True  # so that it multiplies, also by the transpose
        left, right = (random.standard_normal((rows, size), np.float32) for size in (inner, outer))
        for product, expected in (
            (transform.apply(left), left @ matrix.T),
            (transform.reverse_transform(right), right @ matrix),
        ):
            if not np.allclose(product, expected, rtol=1e-4, atol=1e-4):
                return False
    return True


if not _LOADED_BEFORE:  # else other threads may be using it
    use_suited_kernels()
