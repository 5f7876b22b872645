"""The `precomputed` backend: vectors read from files, made by an API, a cluster or another tool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config.model import PrecomputedSettings
from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int64
from pipeline.encoders.given import Precomputed, id_paths, row_paths
from pipeline.formats.npy import VectorFile, map_vectors
from pipeline.models.model import ROLES, Role

if TYPE_CHECKING:
    import pyarrow as pa


def open_vectors(settings: PrecomputedSettings) -> PrecomputedVectors:
    """The files that settings name, of which both must exist."""
    return PrecomputedVectors(row_paths(settings, ".npy file of float vectors"), id_paths(settings))


@dataclass(frozen=True)
class PrecomputedVectors(Precomputed):
    """One file of vectors [texts, dimension] for each role."""

    @cached_property
    def _vectors(self) -> dict[Role, VectorFile]:
        return {role: map_vectors(path, f"model.{role}") for role, path in self.paths.items()}

    def own_ids(self, role: Role) -> pa.Array | None:
        """See `Precomputed.own_ids`."""
        return self._vectors[role].ids

    def count(self, role: Role) -> int:
        """See `Precomputed.count`."""
        return len(self._vectors[role].array)

    def match_roles(self) -> None:
        """See `Precomputed.match_roles`: vectors have as many dimensions in both files."""
        passages, queries = (self._vectors[role].array for role in ROLES)
        if passages.shape[1] != queries.shape[1]:
            raise InputError(
                f"model.passages has {passages.shape[1]} dimensions and model.queries {queries.shape[1]}",
                allowed="the same for both",
                fix="encode both with one model",
            )

    def read(self, role: Role, rows: Int64, ids: pa.ChunkedArray) -> Float32:
        """See `Precomputed.read`: float32 [rows, dimension]; a row of zeros is refused."""
        found = self.files[role].take(self._vectors[role].array, rows)
        with np.errstate(over="ignore"):  # infinite numbers are refused when vectors are stored
            vectors = found.astype(np.float32, copy=False)
        zero = ~vectors.any(axis=1)
        if zero.any():
            first = int(np.argmax(zero))
            raise InputError(
                f"model.{role}: {self.paths[role]}: row {rows[first]} ('{ids[first]}') is all zeros",
                fix="encode that text again: a zero vector has no direction",
            )
        return vectors
