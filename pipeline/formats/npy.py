"""Vectors in `.npy` files, mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError


def map_vectors(path: Path, setting: str) -> npt.NDArray[np.floating[Any]]:
    """The vectors of a file, float16, 32 or 64 [rows, dimension], memory-mapped.

    `setting` is the config's setting that names the file, for messages.
    """
    try:
        with np.errstate(over="ignore"):  # the header may give an impossible shape
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception:  # NumPy evaluates the header, which may hold anything
        array = None
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"{setting}: {path} is not a .npy file that can be mapped",
            allowed="one written by numpy.save, without pickled objects",
            fix="save the vectors again",
        )
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype not in (np.float16, np.float32, np.float64):
        raise InputError(
            f"{setting}: {path} holds {array.dtype} of shape {list(array.shape)}",
            allowed="float16, float32 or float64 of shape [texts, dimension]",
            fix="save the vectors again",
        )
    return array
