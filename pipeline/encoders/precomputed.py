"""The `precomputed` backend: vectors people already have, from an API, a cluster or another tool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.config import ModelConfig
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Embeddings, Float32
from pipeline.models.model import ROLES, Role
from pipeline.storage.disk import changed, hash_given
from pipeline.storage.vectors import forget

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Precomputed:
    """One `.npy` file [texts, dimension] for each role, rows in the collection's order.

    Attributes:
        paths: Each role's file.
    """

    paths: dict[Role, Path]

    @classmethod
    def find(cls, config: ModelConfig) -> Precomputed:
        """The files a config names.

        Raises:
            InputError: One is not named, or is not there.
        """
        named: dict[Role, str | None] = {"passages": config.passages, "queries": config.queries}
        paths = {}
        for role in ROLES:
            name = named[role]
            if name is None or not Path(name).is_file():
                found = "is not given" if name is None else f"no file {name}"
                raise InputError(
                    f"model.{role}: {found}, and backend 'precomputed' needs it",
                    allowed=f"a .npy file of float vectors, one row for each of the {role}",
                    fix=f"set model.{role}; a relative path is taken from the config file's folder",
                )
            paths[role] = Path(name)
        return cls(paths)

    def recipe(self, role: Role) -> dict[str, Any]:
        """What stands in the key of the vectors: the bytes of their file."""
        return {"file": self._hashes[role]}

    @cached_property
    def _hashes(self) -> dict[Role, str]:
        """SHA-256 of each file, as all benchmarks of a sweep take it."""
        return {role: hash_given(path) for role, path in self.paths.items()}

    @cached_property
    def _arrays(self) -> dict[Role, npt.NDArray[np.floating[Any]]]:
        return {role: _open(role, path) for role, path in self.paths.items()}

    def match(self, collection: Collection) -> None:
        """Refuse files that do not fit the collection or each other, before anything is made of either.

        Raises:
            InputError: One has more or fewer rows than there are texts, or their dimensions differ.
        """
        counts: dict[Role, int] = {"passages": len(collection.passages), "queries": len(collection.queries)}
        for role, count in counts.items():
            rows = len(self._arrays[role])
            if rows != count:
                raise InputError(
                    f"model.{role}: {self.paths[role]} has {counted(rows, 'row')}",
                    allowed=f"{count:,}, one for each of the {role} in the collection's order",
                    fix="'benchmarco data' says which there are: queries without judgments are left out",
                )
        passages, queries = self._arrays["passages"], self._arrays["queries"]
        if passages.shape[1] != queries.shape[1]:
            raise InputError(
                f"model.passages has {passages.shape[1]} dimensions and model.queries {queries.shape[1]}",
                allowed="the same for both",
                fix="encode both with one model",
            )

    def take(self, role: Role, rows: range, ids: pa.ChunkedArray) -> Float32:
        """Vectors of consecutive texts, float32 [rows, dimension]; `match` comes before it.

        Args:
            role: Which file to read.
            rows: Its rows.
            ids: Arrow strings [rows], the ids of the texts.

        Raises:
            InputError: A row is all zeros; or the file is no longer the one that was hashed.
        """
        array = self._arrays[role]
        with np.errstate(over="ignore"):  # what becomes infinity is refused below
            vectors = np.array(array[rows.start : rows.stop], np.float32)
        forget(Embeddings((array,)), rows.start, rows.stop)
        if hash_given(self.paths[role]) != self._hashes[role]:
            raise changed(str(self.paths[role]))
        zero = ~vectors.any(axis=1)
        if zero.any():
            first = int(np.argmax(zero))
            raise InputError(
                f"model.{role}: {self.paths[role]}: row {rows.start + first} ('{ids[first]}') is all zeros",
                fix="encode that text again: a zero vector has no direction",
            )
        return vectors


def _open(role: Role, path: Path) -> npt.NDArray[np.floating[Any]]:
    try:
        with np.errstate(over="ignore"):  # of a shape that no file has
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception:  # NumPy evaluates the header, which may hold anything
        array = None
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"model.{role}: {path} is not a .npy file that can be mapped",
            allowed="one written by numpy.save, without pickled objects",
            fix="save the vectors again",
        )
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype not in (np.float16, np.float32, np.float64):
        raise InputError(
            f"model.{role}: {path} holds {array.dtype} of shape {list(array.shape)}",
            allowed="float16, float32 or float64 of shape [texts, dimension]",
            fix="save the vectors again",
        )
    return array
