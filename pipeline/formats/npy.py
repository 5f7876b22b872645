"""Vectors in `.npy` and `.npz` files, mapped into memory, and the ids of their rows.

An `.npz` file is a zip archive. What `numpy.savez` writes is stored as it is, so that the bytes of its arrays
can be mapped like those of an `.npy` file; `numpy.savez_compressed` packs them, and they are read.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array
from pipeline.formats.blocks import read_blocks

if TYPE_CHECKING:
    import pyarrow as pa

VECTORS, IDS = "vectors.npy", "ids.npy"  # the members of an .npz file
_LOCAL_HEADER = 30  # bytes of a member's header in the file, before its name


@dataclass(frozen=True)
class VectorFile:
    """The vectors of a file.

    Attributes:
        array: float16, 32 or 64 [rows, dimension], memory-mapped unless the file is compressed.
        ids: Arrow strings [rows], if the file has them.
    """

    array: Array
    ids: pa.Array | None


def map_vectors(path: Path, setting: str) -> VectorFile:
    """The vectors of a file; `setting` is the config's setting that names the file, for messages."""
    ids = None
    try:
        with np.errstate(over="ignore"):  # the header may give an impossible shape
            if _is_archive(path):
                array, ids = _map_archive(path)
            else:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception:  # NumPy evaluates the header, which may hold anything
        array = None
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"{setting}: {path} is not a .npy or .npz file of vectors",
            allowed="one written by numpy.save; or by numpy.savez, with arrays 'vectors' and 'ids'; neither "
            "with pickled objects",
            fix="save the vectors again",
        )
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype not in (np.float16, np.float32, np.float64):
        raise InputError(
            f"{setting}: {path} holds {array.dtype} of shape {list(array.shape)}",
            allowed="float16, float32 or float64 of shape [texts, dimension]",
            fix="save the vectors again",
        )
    return VectorFile(array, ids)


def _is_archive(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"PK\3\4"


def _map_archive(path: Path) -> tuple[Array, pa.Array]:
    """The vectors of an archive, and their ids."""
    import pyarrow as pa

    with zipfile.ZipFile(path) as archive:
        ids = map_member(path, archive, IDS)
        return map_member(path, archive, VECTORS), pa.array(ids.astype(str).tolist(), pa.string())


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
    with open(path, "rb") as file:
        file.seek(entry.header_offset + _LOCAL_HEADER - 4)
        lengths = np.frombuffer(file.read(4), "<u2")  # of the name and of the extra field that follow
    start = entry.header_offset + _LOCAL_HEADER + int(lengths.sum()) + before
    return np.memmap(path, dtype, "r", start, shape, order)
