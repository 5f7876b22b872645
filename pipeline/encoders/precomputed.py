"""The `precomputed` backend: vectors read from files, made by an API, a cluster or another tool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.config import ModelSettings, VectorSettings, setting
from pipeline.config.settings import LocalPath
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Embeddings, Float32
from pipeline.formats.npy import map_vectors
from pipeline.models.model import ROLES, Role
from pipeline.storage.hashing import file_changed, hash_user_file
from pipeline.storage.vector_shards import release_memory

if TYPE_CHECKING:
    import pyarrow as pa


class PrecomputedSettings(VectorSettings):
    """Vectors from files, which another program wrote."""

    backend: Literal["precomputed"] = ModelSettings.narrowed("backend", "precomputed")
    passages: LocalPath | None = setting(
        None, ".npy [passages, d], in corpus order", shapes="passages", keyed=False
    )
    queries: LocalPath | None = setting(
        None, ".npy [queries, d], in query order", shapes="queries", keyed=False
    )

    def open(self) -> Precomputed:
        """The files, of which both must be given and exist."""
        given: dict[Role, str | None] = {"passages": self.passages, "queries": self.queries}
        paths = {}
        for role in ROLES:
            name = given[role]
            if name is None or not Path(name).is_file():
                found = "is not given" if name is None else f"no file {name}"
                raise InputError(
                    f"model.{role}: {found}, and backend 'precomputed' needs it",
                    allowed=f"a .npy file of float vectors, one row for each of the {role}",
                    fix=f"set model.{role}; a relative path is taken from the config file's folder",
                )
            paths[role] = Path(name)
        return Precomputed(paths)


@dataclass(frozen=True)
class Precomputed:
    """One `.npy` file [texts, dimension] for each role, rows in the collection's order."""

    paths: dict[Role, Path]

    def recipe(self, role: Role) -> dict[str, Any]:
        """The model's part of the key of the vectors: the hash of their file."""
        return {"file": self._hashes[role]}

    @cached_property
    def _hashes(self) -> dict[Role, str]:
        """SHA-256 of each file, computed once for all benchmarks of a sweep."""
        return {role: hash_user_file(path) for role, path in self.paths.items()}

    @cached_property
    def _arrays(self) -> dict[Role, npt.NDArray[np.floating[Any]]]:
        return {role: map_vectors(path, f"model.{role}") for role, path in self.paths.items()}

    def match(self, collection: Collection) -> None:
        """Refuse files whose rows do not fit the collection, or whose dimensions differ."""
        counts: dict[Role, int] = {"passages": len(collection.passages), "queries": len(collection.queries)}
        for role, count in counts.items():
            rows = len(self._arrays[role])
            if rows != count:
                raise InputError(
                    f"model.{role}: {self.paths[role]} has {counted(rows, 'row')}",
                    allowed=f"{count:,}, one for each of the {role} in the collection's order",
                    fix="'benchmarco data' counts the texts: queries without judgments are left out",
                )
        passages, queries = self._arrays["passages"], self._arrays["queries"]
        if passages.shape[1] != queries.shape[1]:
            raise InputError(
                f"model.passages has {passages.shape[1]} dimensions and model.queries {queries.shape[1]}",
                allowed="the same for both",
                fix="encode both with one model",
            )

    def take(self, role: Role, rows: range, ids: pa.ChunkedArray) -> Float32:
        """Vectors of consecutive texts, float32 [rows, dimension]; `match` is called before it.

        `ids` are those of the texts, Arrow strings [rows]. A row of zeros is refused, and a file that changed
        after it was hashed.
        """
        array = self._arrays[role]
        with np.errstate(over="ignore"):  # infinite numbers are refused when vectors are stored
            vectors = np.array(array[rows.start : rows.stop], np.float32)
        release_memory(Embeddings((array,)), rows.start, rows.stop)
        if hash_user_file(self.paths[role]) != self._hashes[role]:
            raise file_changed(str(self.paths[role]))
        zero = ~vectors.any(axis=1)
        if zero.any():
            first = int(np.argmax(zero))
            raise InputError(
                f"model.{role}: {self.paths[role]}: row {rows.start + first} ('{ids[first]}') is all zeros",
                fix="encode that text again: a zero vector has no direction",
            )
        return vectors
