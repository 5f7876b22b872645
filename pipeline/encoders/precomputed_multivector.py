"""The `precomputed` backend for multi-vector output: token vectors read from files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config.model import PrecomputedSettings
from pipeline.core.errors import InputError
from pipeline.core.records import Int64, Ragged, TokenEmbeddings
from pipeline.encoders.given import Precomputed, id_paths, row_paths
from pipeline.formats.npy import map_token_vectors
from pipeline.models.model import ROLES, Role

if TYPE_CHECKING:
    import pyarrow as pa


def open_token_vectors(settings: PrecomputedSettings) -> PrecomputedTokenVectors:
    """The files that settings name, of which both must exist."""
    return PrecomputedTokenVectors(row_paths(settings, ".npz file of token vectors"), id_paths(settings))


@dataclass(frozen=True)
class PrecomputedTokenVectors(Precomputed):
    """One `.npz` file for each role, by `numpy.savez`, texts in the collection's order.

    `vectors` [tokens, dimension] are those of all texts, and `ends` [texts] says where each text ends.
    """

    @cached_property
    def _texts(self) -> dict[Role, TokenEmbeddings]:
        return {role: map_token_vectors(path, f"model.{role}") for role, path in self.paths.items()}

    def count(self, role: Role) -> int:
        """See `Precomputed.count`."""
        return len(self._texts[role])

    def match_roles(self) -> None:
        """See `Precomputed.match_roles`: vectors have as many dimensions in both files."""
        passages, queries = (self._texts[role].vectors.dimension for role in ROLES)
        if passages != queries:
            raise InputError(
                f"model.passages has {passages} dimensions and model.queries {queries}",
                allowed="the same for both",
                fix="encode both with one model",
            )

    def read(self, role: Role, rows: Int64, ids: pa.ChunkedArray) -> Ragged:
        """See `Precomputed.read`."""
        texts = self._texts[role]
        (array,) = texts.vectors.shards
        starts, ends = texts.bounds[rows], texts.ends[rows]
        own_ends = np.cumsum(ends - starts)
        tokens = np.repeat(ends - own_ends, ends - starts) + np.arange(own_ends[-1])
        found = self.files[role].take(array, tokens)
        with np.errstate(over="ignore"):  # infinite numbers are refused when vectors are stored
            return Ragged(own_ends, (np.ascontiguousarray(found, np.float32),))
