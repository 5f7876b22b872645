"""The `precomputed` backend: vectors read from files, made by an API, a cluster or another tool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.config import VectorSettings
from pipeline.core.errors import InputError
from pipeline.core.records import Embeddings, Float32
from pipeline.encoders.given import Precomputed, PrecomputedFiles
from pipeline.formats.npy import map_vectors
from pipeline.models.model import Role
from pipeline.storage.vector_shards import release_memory

if TYPE_CHECKING:
    import pyarrow as pa


class PrecomputedSettings(PrecomputedFiles, VectorSettings):
    """Vectors from files, which another program wrote: `.npy` files [texts, dimension]."""

    def open(self) -> PrecomputedVectors:
        """See `ModelSettings.open`."""
        return PrecomputedVectors(self.paths(".npy file of float vectors"))


@dataclass(frozen=True)
class PrecomputedVectors(Precomputed):
    """One `.npy` file [texts, dimension] for each role."""

    @cached_property
    def _arrays(self) -> dict[Role, npt.NDArray[np.floating[Any]]]:
        return {role: map_vectors(path, f"model.{role}") for role, path in self.paths.items()}

    def count(self, role: Role) -> int:
        """See `Precomputed.count`."""
        return len(self._arrays[role])

    def match_roles(self) -> None:
        """See `Precomputed.match_roles`: vectors have as many dimensions in both files."""
        passages, queries = self._arrays["passages"], self._arrays["queries"]
        if passages.shape[1] != queries.shape[1]:
            raise InputError(
                f"model.passages has {passages.shape[1]} dimensions and model.queries {queries.shape[1]}",
                allowed="the same for both",
                fix="encode both with one model",
            )

    def read(self, role: Role, rows: range, ids: pa.ChunkedArray) -> Float32:
        """See `Precomputed.read`: float32 [rows, dimension]; a row of zeros is refused."""
        array = self._arrays[role]
        with np.errstate(over="ignore"):  # infinite numbers are refused when vectors are stored
            vectors = np.array(array[rows.start : rows.stop], np.float32)
        release_memory(Embeddings((array,)), rows.start, rows.stop)
        zero = ~vectors.any(axis=1)
        if zero.any():
            first = int(np.argmax(zero))
            raise InputError(
                f"model.{role}: {self.paths[role]}: row {rows.start + first} ('{ids[first]}') is all zeros",
                fix="encode that text again: a zero vector has no direction",
            )
        return vectors
