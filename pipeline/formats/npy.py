"""Vectors, token vectors and sparse matrices in `.npy` and `.npz` files, mapped into memory.

An `.npz` file is a zip archive. What `numpy.savez` writes is stored as it is, so that the bytes of its arrays
can be mapped like those of an `.npy` file; `numpy.savez_compressed` packs them, and they are read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from pipeline.core.errors import InputError, memory_ran_out
from pipeline.core.records import Array, Embeddings, TokenEmbeddings
from pipeline.formats.texts import read_blocks

if TYPE_CHECKING:
    import pyarrow as pa

VECTORS, IDS = "vectors.npy", "ids.npy"  # the members of an .npz file
TOKEN_VECTORS = ("vectors.npy", "ends.npy")  # of one with token vectors
CSR = ("format.npy", "shape.npy", "indptr.npy", "indices.npy", "data.npy")  # of SciPy's with a sparse matrix
FLOATS = (np.float16, np.float32, np.float64)
_LOCAL_HEADER = 30  # bytes of a member's header in the file, before its name


@dataclass(frozen=True)
class VectorFile:
    """The vectors of a file."""

    array: Array  # float16, 32 or 64 [rows, dimension], memory-mapped unless the file is compressed
    ids: pa.Array | None  # strings [rows], if the file has them


@dataclass(frozen=True)
class SparseMatrix:
    """A matrix in CSR: row `i` is at [starts[i], starts[i + 1]) in the other two arrays."""

    width: int  # the number of columns
    starts: Array  # int32 or int64 [rows + 1]
    columns: Array  # int32 or int64 [entries], in any order within a row
    values: Array  # floats [entries]

    def __len__(self) -> int:
        return len(self.starts) - 1


@np.errstate(over="ignore")  # the header may give an impossible shape
def map_vectors(path: Path, setting: str) -> VectorFile:
    """The vectors of a file; `setting` is the config's setting that names the file, for messages."""
    import pyarrow as pa

    ids, members = None, _map_members(path, (VECTORS, IDS))
    try:
        if members:
            array, ids = members[0], pa.array(members[1].astype(str).tolist(), pa.string())
        else:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy evaluates the header, which may hold anything
        if memory_ran_out(error):
            raise
        array = None
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"{setting}: {path} is not a .npy or .npz file of vectors",
            allowed="one written by numpy.save; or by numpy.savez, with arrays 'vectors' and 'ids'; neither "
            "with pickled objects",
            fix="save the vectors again",
        )
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype not in FLOATS:
        raise InputError(
            f"{setting}: {path} holds {array.dtype} of shape {list(array.shape)}",
            allowed="float16, float32 or float64 of shape [texts, dimension]",
            fix="save the vectors again",
        )
    return VectorFile(array, ids)


def read_ids(path: Path) -> pa.Array:
    """Ids from a text file, one a line: Arrow strings [lines]."""
    import pyarrow as pa

    return pa.array([line for block in read_blocks(path) for line in block.texts()], pa.string())


def map_member(path: Path, archive: zipfile.ZipFile, name: str) -> Array:
    """One array of the archive; memory-mapped if it is stored as it is."""
    entry = archive.getinfo(name)
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise ValueError(f"version {version}")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(member)
        if dtype.hasobject:
            raise ValueError("objects")
        count = int(np.prod(shape))
        order: Literal["C", "F"] = "F" if by_columns else "C"
        if entry.compress_type != zipfile.ZIP_STORED or not count:
            content = member.read()
            return np.frombuffer(content, dtype, count).reshape(shape, order=order)
        before = member.tell()
    # The archive's directory does not say where the bytes of a stored member begin: its local header does, of
    # which the lengths of name and extra field are the last 4 of 30 bytes.
    with open(path, "rb") as file:
        file.seek(entry.header_offset + _LOCAL_HEADER - 4)
        lengths = np.frombuffer(file.read(4), "<u2")
    start = entry.header_offset + _LOCAL_HEADER + int(lengths.sum()) + before
    return np.memmap(path, dtype, "r", start, shape, order)


def _map_members(path: Path, names: Sequence[str]) -> list[Array] | None:
    """Arrays of an archive; None if the file, which may hold anything, is no archive that has them."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [map_member(path, archive, name) for name in names]
    except Exception as error:
        if memory_ran_out(error):
            raise
        return None


def map_token_vectors(path: Path, setting: str) -> TokenEmbeddings:
    """The token vectors of a file, memory-mapped where it is not compressed; `setting` names it."""
    vectors, ends = _map_members(path, TOKEN_VECTORS) or [np.empty(0)] * 2
    if vectors.ndim != 2 or not vectors.shape[1] or vectors.dtype not in FLOATS:
        raise InputError(
            f"{setting}: {path} has no token vectors",
            allowed="a file that numpy.savez wrote of `vectors`, floats [tokens, dimension], and `ends`, "
            "whole numbers [texts]: where each text ends in the vectors",
            fix="save the vectors again",
        )
    whole = ends.ndim == 1 and ends.dtype.kind in "iu"
    bounds = np.concatenate([[0], ends]).astype(np.int64) if whole else np.zeros(1, np.int64)
    if (np.diff(bounds) < 1).any() or bounds[-1] != len(vectors):
        raise InputError(
            f"{setting}: {path}: the `ends` do not cut {len(vectors):,} token vectors into texts",
            allowed="rising whole numbers, one for each text, the last of them the number of vectors",
            fix="save the vectors again",
        )
    return TokenEmbeddings(Embeddings((vectors,)), bounds[1:])


def map_sparse(path: Path, setting: str) -> SparseMatrix:
    """The matrix of a file, memory-mapped where it is not compressed; `setting` names it."""
    kind, shape, starts, columns, values = _map_members(path, CSR) or [np.empty(0)] * 5
    if kind.size != 1 or kind.item() != b"csr" or shape.shape != (2,):
        raise InputError(
            f"{setting}: {path} is not a sparse matrix in CSR",
            allowed="one that scipy.sparse.save_npz wrote of a csr_matrix or csr_array",
            fix="save the weights again; beyond memory with compressed=False",
        )
    rows, width = (int(number) for number in shape)
    floats = values.dtype in FLOATS
    fits = starts.shape == (rows + 1,) and columns.shape == values.shape == (int(starts[-1]),)
    if not (floats and fits and starts[0] == 0 and columns.dtype.kind == "i" and starts.dtype.kind == "i"):
        raise InputError(
            f"{setting}: {path} holds {values.dtype} values of shape {list(values.shape)}, "
            f"columns of shape {list(columns.shape)} and {len(starts) - 1:,} of {rows:,} rows",
            allowed="a whole CSR matrix of float16, float32 or float64",
            fix="save the weights again",
        )
    return SparseMatrix(width, starts, columns, values)
