"""Files of several arrays, one after the other in NumPy's `.npy` format, each from a multiple of 64 bytes.

One file holds all of a shard whose rows have parts of different types, so that it is whole or does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pipeline.core.records import Array

ALIGNMENT = 64


def write_arrays(file: BinaryIO, arrays: Sequence[Array]) -> None:
    """Write arrays of numbers to an empty file."""
    for array in arrays:
        file.write(bytes(-file.tell() % ALIGNMENT))
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)


def map_arrays(path: Path) -> tuple[Array, ...]:
    """The arrays of a file, memory-mapped.

    Raises:
        ValueError: The file was not written by `write_arrays`.
    """
    arrays: list[Array] = []
    size = path.stat().st_size
    with open(path, "rb") as file:
        while file.tell() < size:
            file.seek(-file.tell() % ALIGNMENT, 1)
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError(f"{path}: not an array of numbers at byte {file.tell()}")
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
            if by_columns or dtype.hasobject:
                raise ValueError(f"{path}: an array that write_arrays does not write")
            bytes_of = int(np.prod(shape)) * dtype.itemsize
            if bytes_of:  # an empty range of a file cannot be mapped
                arrays.append(np.memmap(path, dtype, "r", file.tell(), shape))
            else:
                arrays.append(np.empty(shape, dtype))
            file.seek(bytes_of, 1)
    return tuple(arrays)
