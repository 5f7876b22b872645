"""Faiss, with kernels of matrix products that suit this processor; other modules take `faiss` from here.

The wheels of Faiss hold an OpenBLAS of 2021. For a processor that it does not know, such as Sapphire Rapids
or Zen 5, it takes kernels for the Pentium 4 of 2004: Prescott, with SSE3. Faiss then trains and searches
indexes at a third of its speed.
OpenBLAS reads OPENBLAS_CORETYPE while it is loaded: it is set around the import, unless the user has set it.
NumPy has loaded its own OpenBLAS before. Nothing is multiplied here: that would start threads, and a
process that is forked later lacks them.
"""

from __future__ import annotations

import os

import numpy as np  # noqa: F401  # its OpenBLAS chooses its kernels before the variable is set

from pipeline.core import machine

VARIABLE = "OPENBLAS_CORETYPE"
AVX512 = ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd")
"""What OpenBLAS's kernels for SkylakeX need, by Linux's names of features."""

_flags = machine.processor_flags()
SUITED = (
    "SkylakeX" if _flags.issuperset(AVX512) else "Haswell" if _flags.issuperset(("avx2", "fma")) else None
)
"""The OpenBLAS kernels that suit this processor; None for a processor that is not an x86 with AVX2."""
_chosen_here = None if VARIABLE in os.environ else SUITED
if _chosen_here:
    os.environ[VARIABLE] = _chosen_here
try:
    import faiss as faiss
finally:
    if _chosen_here:
        del os.environ[VARIABLE]
