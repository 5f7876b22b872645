"""Runs the tests of AMX on a machine without it: each of its instructions is a call of a function in C.

    NUMBA_CACHE_DIR=$(mktemp -d) .venv/bin/python scripts/emulate_amx.py

Needs gcc. Without a cache of its own, kernels that call these functions would be kept for other processes.
What runs other processes itself is left out.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llvmlite import ir

from pipeline.core import machine
from pipeline.native import amx

SOURCE = r"""
#include <stdint.h>
#include <string.h>
static __thread uint8_t tiles[8][16][64];
void zero(int64_t tile, int64_t unused, int64_t none) { memset(tiles[tile], 0, 1024); }
void load(int64_t tile, int64_t from, int64_t stride) {
  for (int i = 0; i < 16; i++) memcpy(tiles[tile][i], (char *)from + i * stride, 64);
}
void store(int64_t tile, int64_t to, int64_t stride) {
  for (int i = 0; i < 16; i++) memcpy((char *)to + i * stride, tiles[tile][i], 64);
}
#define PRODUCT(name, left, right) void name(int64_t sums, int64_t a, int64_t b) { \
  for (int i = 0; i < 16; i++) for (int j = 0; j < 16; j++) { \
    uint32_t sum; memcpy(&sum, &tiles[sums][i][4 * j], 4); \
    for (int k = 0; k < 16; k++) for (int q = 0; q < 4; q++) \
      sum += (uint32_t)((left)tiles[a][i][4 * k + q] * (right)tiles[b][k][4 * j + q]); \
    memcpy(&tiles[sums][i][4 * j], &sum, 4); } }
PRODUCT(bssd, int8_t, int8_t) PRODUCT(busd, uint8_t, int8_t)
PRODUCT(bsud, int8_t, uint8_t) PRODUCT(buud, uint8_t, uint8_t)
"""
NAMES = {"tilezero": "zero", "tileloadd64": "load", "tileloaddt164": "load", "tilestored64": "store"}
SIZE = ir.IntType(64)


def emulated(library: Any) -> Any:
    """What stands for `amx._call`: it writes a call of a function of the library."""

    def call(builder: Any, name: str, arguments: Sequence[Any]) -> None:
        if name in ("ldtilecfg", "tilerelease"):
            return
        function = getattr(library, NAMES.get(name, name.removeprefix("tdp")))
        address = SIZE(ctypes.cast(function, ctypes.c_void_p).value)
        kind = ir.FunctionType(ir.VoidType(), [SIZE] * 3).as_pointer()
        words = [
            (builder.ptrtoint if isinstance(each.type, ir.PointerType) else builder.zext)(each, SIZE)
            for each in arguments
        ]
        builder.call(builder.inttoptr(address, kind), [*words, *[SIZE(0)] * (3 - len(words))])

    return call


def main() -> int:
    """Compile the functions, and run the tests with them."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        sys.exit("set NUMBA_CACHE_DIR to an empty folder")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tiles.so"
        compile_ = ["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-x", "c", "-o", str(file), "-"]
        subprocess.run(compile_, input=SOURCE, text=True, check=True)
        amx._call = emulated(ctypes.CDLL(str(file)))
        machine.has_amx = lambda: True  # type: ignore[assignment]
        return int(pytest.main(["-q", "-k", "not every_processor", "tests/native/test_amx.py"]))


if __name__ == "__main__":
    sys.exit(main())
