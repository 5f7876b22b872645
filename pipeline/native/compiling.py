"""Compilation of kernels for the processor at hand, kept on disk.

Numba translates Python functions to LLVM's intermediate representation (IR), a typed assembler without real
registers, and LLVM makes machine code of it. LLVM turns plain loops over floats into vector instructions if
it sees that no index is negative, as in `range(n)`; so a loop over a part of an array takes a slice first.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from numba import njit, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

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


def instruction(result: Any, *kinds: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function that kernels call of one that writes LLVM's instructions for it.

    That function gets the builder and the arguments, arrays as the address of their first number.

    Args:
        result: Numba's type of what is returned; None is that of the first argument.
        kinds: The type that each argument is converted to; None leaves it as it is, and no kinds leave all.
    """

    def decorate(write: Callable[..., Any]) -> Any:
        @functools.wraps(write)  # Numba reads the names of the arguments from it
        def typed(typing: Any, *given: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                pairs = zip(signature.args, arguments, strict=True)
                addressed = [
                    make_array(kind)(context, builder, each).data if isinstance(kind, types.Array) else each
                    for kind, each in pairs
                ]
                value = write(builder, *addressed)
                return context.get_dummy_value() if signature.return_type == types.void else value

            chosen = [kind or own for kind, own in zip(kinds or given, given, strict=True)]
            return (result or given[0])(*chosen), generate

        return intrinsic(typed)

    return decorate
