"""Sparse matrices in SciPy's `.npz` files, compressed by rows (CSR)."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array
from pipeline.formats.npy import map_member

PARTS = ("format.npy", "shape.npy", "indptr.npy", "indices.npy", "data.npy")


@dataclass(frozen=True)
class SparseMatrix:
    """A matrix in CSR: row `i` is at [starts[i], starts[i + 1]) in the other two arrays.

    Attributes:
        width: The number of columns.
        starts: int32 or int64 [rows + 1].
        columns: int32 or int64 [entries], below `width`, in any order within a row.
        values: Floats [entries].
    """

    width: int
    starts: Array
    columns: Array
    values: Array

    def __len__(self) -> int:
        return len(self.starts) - 1


def map_sparse(path: Path, setting: str) -> SparseMatrix:
    """The matrix of a file, memory-mapped where the file is not compressed, else read into memory.

    `setting` is the config's setting that names the file, for messages.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            kind, shape, starts, columns, values = (map_member(path, archive, name) for name in PARTS)
        whole = kind.item() == b"csr" and shape.shape == (2,)
    except Exception:  # the file may hold anything
        whole = False
    if not whole:
        raise InputError(
            f"{setting}: {path} is not a sparse matrix in CSR",
            allowed="one that scipy.sparse.save_npz wrote of a csr_matrix or csr_array",
            fix="save the weights again; beyond memory with compressed=False",
        )
    rows, width = (int(number) for number in shape)
    floats = values.dtype in (np.float16, np.float32, np.float64)
    fits = starts.shape == (rows + 1,) and columns.shape == values.shape == (int(starts[-1]),)
    if not (floats and fits and starts[0] == 0 and columns.dtype.kind == "i" and starts.dtype.kind == "i"):
        raise InputError(
            f"{setting}: {path} holds {values.dtype} values of shape {list(values.shape)}, "
            f"columns of shape {list(columns.shape)} and {len(starts) - 1:,} of {rows:,} rows",
            allowed="a whole CSR matrix of float16, float32 or float64",
            fix="save the weights again",
        )
    return SparseMatrix(width, starts, columns, values)
