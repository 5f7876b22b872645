"""Compilation of kernels for the processor at hand, kept on disk.

Numba translates Python functions to LLVM's intermediate representation (IR), a typed assembler without real
registers, and LLVM makes machine code of it. LLVM turns plain loops over floats into vector instructions if
it sees that no index is negative, as in `range(n)`; so a loop over a part of an array takes a slice first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

from pipeline.core import machine

machine.check_compiler()
OPTIONS = {"error_model": "numpy", "nogil": True}
"""Without `fastmath`: with it, LLVM reorders sums, approximates quotients and roots, and chooses which
product and sum are rounded as one, for each processor in another way; so the bits of vectors would differ.
"""
_SOURCES = tuple(sorted(map(str, Path(__file__).parent.glob("*.py"))))


class _Compiled:
    """How many kernels were compiled in this process, and not loaded from disk."""

    kernels = 0


class _TolerantCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk, which is ignored where it is damaged or the disk is full."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # Numba compiles again only if the function's own file has changed. Kernels use functions of other
        # files, so the time stamps of this whole package count.
        stamps = [(status.st_mtime, status.st_size) for status in map(os.stat, _SOURCES)]
        self._cache_file._source_stamp = (self._cache_file._source_stamp, *stamps)

    def load_overload(self, *which: Any) -> Any:
        try:
            return super().load_overload(*which)
        except Exception:  # half a file may raise anything
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *made: Any) -> None:
        _Compiled.kernels += 1
        with contextlib.suppress(OSError):
            super().save_overload(*made)


def compiling() -> AbstractContextManager[None]:
    """Context of first calls of kernels: time spent compiling them is not part of a stage's seconds."""
    before = _Compiled.kernels
    return machine.preparing(lambda: _Compiled.kernels > before)


def compiled(function: Callable[..., Any], *, fast: bool = False) -> Any:
    """Compile a function of this package when it is first called, with a cache on disk where possible.

    With `fast`, the last bits of results depend on the processor: for scores that only exclude candidates.
    """
    made = njit(fastmath=fast, **OPTIONS)(function)
    with contextlib.suppress(RuntimeError):  # Numba finds no folder that it can write to
        made._cache = _TolerantCache(function)
    return made


inlined = njit(inline="always", **OPTIONS)
"""Compiles a function of a few lines into the kernel that calls it, before anything else is done."""
merged = njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)
"""Compiles a function into the kernel that calls it, never as a call. A call would reach one compilation of
it from fresh code and another from code loaded from disk, and the two may differ in last bits. Python cannot
call it: the entry points for that would take a sixth of the time that compiling a kernel takes."""
