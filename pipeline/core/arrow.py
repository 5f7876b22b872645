"""Conversion of NumPy arrays to Arrow arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def from_numpy(values: np.ndarray[Any, Any]) -> pa.Array:
    """The numbers of a one-dimensional array as an Arrow array, which shares a contiguous array's memory.

    `pyarrow.array` does the same, but imports pandas when it is first called, which takes 0.3 s.
    """
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)
