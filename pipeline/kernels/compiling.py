"""Compilation of kernels for the processor at hand, kept on disk.

Numba translates Python functions to LLVM's intermediate representation, a typed assembler without real
registers, and LLVM makes machine code of it. Plain loops over floats are enough for that: LLVM turns them
into vector instructions. It has to see that no index is negative, as in `range(n)`, so a loop over a part of
an array takes a slice first.

Numba keeps the machine code in its cache and makes it again when the file of the function has another time
stamp. A kernel uses functions of other files, which could change without that. So the time stamps of all
modules in this package count for each kernel, and those of other files that `compiled` names.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

OPTIONS = {"fastmath": True, "error_model": "numpy", "nogil": True}
_SHARED = tuple(sorted(map(str, Path(__file__).parent.glob("*.py"))))


class _TolerantCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk, which is ignored where it is damaged or the disk is full.

    Args:
        function: The function, whose file Numba looks at.
        sources: Other files, whose time stamps and sizes count as well.
    """

    def __init__(self, function: Callable[..., Any], sources: tuple[str, ...]) -> None:
        super().__init__(function)
        stamps = [(status.st_mtime, status.st_size) for status in map(os.stat, sources)]
        self._cache_file._source_stamp = (self._cache_file._source_stamp, *stamps)

    def load_overload(self, *which: Any) -> Any:
        try:
            return super().load_overload(*which)
        except Exception:  # half a file may raise anything
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *made: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(*made)


def compiled(function: Callable[..., Any], *sources: str, strict: bool = False) -> Any:
    """Compile when first called, with a cache on disk if Numba finds a folder that it can write to.

    Args:
        function: The function.
        sources: The files outside this package of which it uses code.
        strict: Whether sums are computed in the order in which they are written.
    """
    made = njit(**{**OPTIONS, "fastmath": not strict})(function)
    with contextlib.suppress(RuntimeError):
        made._cache = _TolerantCache(function, (*_SHARED, *sources))
    return made


inlined = njit(inline="always", **OPTIONS)
"""Compiles a function of a few lines into the kernel that calls it, before anything else is done."""
merged = njit(forceinline=True, **OPTIONS)
"""Compiles a function into the kernel that calls it, never as a call. A call would reach one compilation of
it from fresh code and another from code loaded from disk, and the two may differ in last bits."""
