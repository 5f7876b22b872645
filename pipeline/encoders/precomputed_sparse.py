"""The `precomputed` backend for sparse output: word weights read from files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config.model import PrecomputedSettings
from pipeline.core.errors import InputError
from pipeline.core.records import Int64, Ragged
from pipeline.encoders.given import Precomputed, id_paths, row_paths
from pipeline.formats.npy import SparseMatrix, map_sparse
from pipeline.models.model import ROLES, Role

if TYPE_CHECKING:
    import pyarrow as pa


def open_weights(settings: PrecomputedSettings) -> PrecomputedWeights:
    """The files that settings name, of which both must exist."""
    return PrecomputedWeights(row_paths(settings, ".npz file of a CSR matrix"), id_paths(settings))


@dataclass(frozen=True)
class PrecomputedWeights(Precomputed):
    """One `.npz` file for each role: a CSR matrix [texts, words], rows in the collection's order."""

    @cached_property
    def _matrices(self) -> dict[Role, SparseMatrix]:
        return {role: map_sparse(path, f"model.{role}") for role, path in self.paths.items()}

    def count(self, role: Role) -> int:
        """See `Precomputed.count`."""
        return len(self._matrices[role])

    def match_roles(self) -> None:
        """See `Precomputed.match_roles`: both matrices have a column for each word."""
        passages, queries = (self._matrices[role].width for role in ROLES)
        if passages != queries:
            raise InputError(
                f"model.passages has {passages:,} columns and model.queries {queries:,}",
                allowed="the same for both, one for each word",
                fix="encode both with one model",
            )

    def read(self, role: Role, rows: Int64, ids: pa.ChunkedArray) -> Ragged:
        """See `Precomputed.read`: words in ascending order, and none with a weight of zero."""
        from scipy.sparse import csr_array

        matrix, file = self._matrices[role], self.files[role]
        first, last = (file.take(matrix.starts, rows + after).astype(np.int64) for after in (0, 1))
        inside = ((first >= 0) & (first <= last) & (last <= len(matrix.columns))).all()
        lengths = last - first
        ends = np.cumsum(lengths)
        entries = (
            np.arange(lengths.sum()) + np.repeat(first - ends + lengths, lengths) if inside else rows[:0]
        )
        columns = file.take(matrix.columns, entries).astype(np.int64)
        if not inside or ((columns < 0) | (columns >= matrix.width)).any():
            raise InputError(
                f"model.{role}: {self.paths[role]}: a row from {rows.min()} on is outside of the matrix",
                allowed=f"columns from 0 to {matrix.width - 1:,}",
                fix="save the weights again",
            )
        with np.errstate(over="ignore"):  # infinite numbers are refused when rows are stored
            values = file.take(matrix.values, entries).astype(np.float32)
        part = csr_array((values, columns, np.append(0, ends)), shape=(len(rows), matrix.width))
        part.sum_duplicates()  # of one word; words are then in ascending order
        part.eliminate_zeros()
        return Ragged(part.indptr[1:].astype(np.int64), (part.indices.astype(np.int32), part.data))
