"""The `precomputed` backend: rows read from files that another program wrote, for all kinds of output."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from typing_extensions import override

from pipeline.config.model import PrecomputedSettings
from pipeline.core.display import counted
from pipeline.core.errors import PATHS_START, InputError
from pipeline.core.records import (
    ROLES,
    Collection,
    Float32,
    Int64,
    JsonObject,
    RaggedRows,
    Role,
    Texts,
    TokenEmbeddings,
)
from pipeline.encoders.batching import RowArrays
from pipeline.encoders.opener import EmbeddingSource
from pipeline.formats.npy import (
    SparseMatrix,
    VectorFile,
    map_sparse,
    map_token_vectors,
    map_vectors,
    read_ids,
)
from pipeline.storage.hashing import VerifiedFile, file_changed, hash_file

if TYPE_CHECKING:
    import pyarrow as pa


class PrecomputedRows(EmbeddingSource):
    """One file for each role, rows in the collection's order, or with ids.

    Files of rows must be given, and all that are given must exist; each is hashed once for all benchmarks of
    a sweep.

    Attributes:
        what: What a file of rows is, for messages.
        columns: What the numbers of a row are, for messages.
        files: The files of rows.
        id_hashes: The files of ids, of the roles that have one, and their hashes.
    """

    stored = True
    unit_length = True
    what: ClassVar[str]
    columns: ClassVar[str] = "dimensions"

    def __init__(self, settings: PrecomputedSettings) -> None:
        self.files: dict[Role, VerifiedFile] = {}
        self.id_hashes: dict[Role, tuple[Path, str]] = {}
        self._rows: dict[Role, Int64] = {}  # of each text, where there are ids
        id_settings: dict[Role, str] = {"passages": "passage_ids", "queries": "query_ids"}
        for role, name in id_settings.items():
            row = f"a {self.what}, one row for each of the {role}"
            self.files[role] = VerifiedFile(_path(settings, role, row))
            if getattr(settings, name):
                path = _path(settings, name, "a text file with an id on each line")
                self.id_hashes[role] = path, hash_file(path)

    @override
    def ingredients(self, role: Role) -> JsonObject:
        ids = {"ids": self.id_hashes[role][1]} if role in self.id_hashes else {}
        return {"model": {"file": self.files[role].hash, **ids}}

    @abstractmethod
    def shape(self, role: Role) -> tuple[int, int]:
        """The rows and the columns of a file."""

    @abstractmethod
    def read(self, role: Role, rows: Int64, ids: pa.ChunkedArray) -> RowArrays:
        """Some rows of a file, int64 [n], as a model would give them; read from `files`, which checks them.

        `ids` are the texts' ids, Arrow strings [n], for messages.
        """

    def own_ids(self, role: Role) -> pa.Array | None:
        """The ids of the rows that a file of rows itself holds, Arrow strings; None if it holds none."""
        return None

    @override
    def match(self, collection: Collection) -> None:
        texts: dict[Role, Texts] = {"passages": collection.passages, "queries": collection.queries}
        for role, of_role in texts.items():
            ids = self._ids(role)
            if ids is not None:
                self._rows[role] = self._find(role, of_role.ids, ids)
                continue
            rows, _ = self.shape(role)
            if rows != len(of_role):
                raise InputError(
                    f"model.{role}: {self.files[role].path} has {counted(rows, 'row')}",
                    allowed=f"{len(of_role):,}, one for each of the {role} in the collection's order",
                    fix="write them in that order, or give ids",
                )
        (_, passages), (_, queries) = (self.shape(role) for role in ROLES)
        if passages != queries:
            raise InputError(
                f"model.passages has {passages:,} {self.columns} and model.queries {queries:,}",
                allowed="the same for both",
                fix="encode both with one model",
            )

    def _ids(self, role: Role) -> pa.Array | None:
        """The ids of the rows of a file, Arrow strings [rows]; None if none are given."""
        if role not in self.id_hashes:
            return self.own_ids(role)
        path, known = self.id_hashes[role]
        ids = read_ids(path)
        if hash_file(path) != known:
            raise file_changed(str(path))
        return ids

    def _find(self, role: Role, wanted: pa.ChunkedArray, ids: pa.Array) -> Int64:
        """int64 [texts]: the row of each text; refused if one has none, or ids are wrong."""
        import pyarrow.compute as pc

        file = self.files[role].path
        where = f"the ids of model.{role}, {self.id_hashes[role][0] if role in self.id_hashes else file},"
        rows, _ = self.shape(role)
        if len(ids) != rows:
            problem = f"{where} are {len(ids):,}, and {file} has {counted(rows, 'row')}"
            raise InputError(problem, allowed="an id for each row", fix="write both files again")
        counts = pc.value_counts(ids)
        if len(counts) != len(ids):
            twice = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
            problem = f"{where} hold '{twice}' more than once"
            raise InputError(problem, allowed="each id once", fix="write both files again")
        places = pc.index_in(wanted, value_set=ids)
        if places.null_count:
            first = wanted.filter(pc.is_null(places))[0].as_py()
            raise InputError(
                f"{where} lack {places.null_count:,} of the {role}, such as '{first}'",
                allowed=f"the ids of all {role}, in any order, and others besides",
                fix="encode these texts too",
            )
        return np.asarray(places.to_numpy(), np.int64)

    @override
    def take(self, role: Role, rows: range, ids: pa.ChunkedArray) -> RowArrays:
        """`match` is called before it; a file changed since it was hashed is refused."""
        chosen = self._rows[role][rows.start : rows.stop] if role in self._rows else np.array(rows, np.int64)
        return self.read(role, chosen, ids)


class PrecomputedVectors(PrecomputedRows):
    """One file of vectors [texts, dimension] for each role."""

    what = ".npy file of float vectors"

    @cached_property
    def _vectors(self) -> dict[Role, VectorFile]:
        return {role: map_vectors(file.path, f"model.{role}") for role, file in self.files.items()}

    @override
    def own_ids(self, role: Role) -> pa.Array | None:
        return self._vectors[role].ids

    @override
    def shape(self, role: Role) -> tuple[int, int]:
        rows, dimensions = self._vectors[role].array.shape
        return rows, dimensions

    @override
    def read(self, role: Role, rows: Int64, ids: pa.ChunkedArray) -> Float32:
        """A row of zeros is refused."""
        stored = self.files[role].take(self._vectors[role].array, rows)
        with np.errstate(over="ignore"):  # infinite numbers are refused when vectors are stored
            vectors = stored.astype(np.float32, copy=False)
        zero = ~vectors.any(axis=1)
        if zero.any():
            first = int(np.argmax(zero))
            raise InputError(
                f"model.{role}: {self.files[role].path}: row {rows[first]} ('{ids[first]}') is all zeros",
                fix="encode that text again: a zero vector has no direction",
            )
        return vectors


class PrecomputedWeights(PrecomputedRows):
    """One `.npz` file for each role: a CSR matrix [texts, words], rows in the collection's order."""

    what = ".npz file of a CSR matrix"
    columns = "columns"

    @cached_property
    def _matrices(self) -> dict[Role, SparseMatrix]:
        return {role: map_sparse(file.path, f"model.{role}") for role, file in self.files.items()}

    @override
    def shape(self, role: Role) -> tuple[int, int]:
        return len(self._matrices[role]), self._matrices[role].width

    @override
    def read(self, role: Role, rows: Int64, ids: pa.ChunkedArray) -> RaggedRows:
        """Words in ascending order, and none with a weight of zero."""
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
                f"model.{role}: {self.files[role].path}: a row from {rows.min()} on is outside of the matrix",
                allowed=f"columns from 0 to {matrix.width - 1:,}",
                fix="save the weights again",
            )
        with np.errstate(over="ignore"):  # infinite numbers are refused when rows are stored
            values = file.take(matrix.values, entries).astype(np.float32)
        part = csr_array((values, columns, np.append(0, ends)), shape=(len(rows), matrix.width))
        part.sum_duplicates()  # of one word; words are then in ascending order
        part.eliminate_zeros()
        return RaggedRows(part.indptr[1:].astype(np.int64), (part.indices.astype(np.int32), part.data))


class PrecomputedTokenVectors(PrecomputedRows):
    """One `.npz` file for each role, by `numpy.savez`, texts in the collection's order.

    `vectors` [tokens, dimension] are those of all texts, and `ends` [texts] says where each text ends.
    """

    what = ".npz file of token vectors"

    @cached_property
    def _texts(self) -> dict[Role, TokenEmbeddings]:
        return {role: map_token_vectors(file.path, f"model.{role}") for role, file in self.files.items()}

    @override
    def shape(self, role: Role) -> tuple[int, int]:
        return len(self._texts[role]), self._texts[role].vectors.dimension

    @override
    def read(self, role: Role, rows: Int64, ids: pa.ChunkedArray) -> RaggedRows:
        texts = self._texts[role]
        (array,) = texts.vectors.shards
        starts, ends = texts.bounds[rows], texts.ends[rows]
        ends_here = np.cumsum(ends - starts)
        tokens = np.repeat(ends - ends_here, ends - starts) + np.arange(ends_here[-1])
        stored = self.files[role].take(array, tokens)
        with np.errstate(over="ignore"):  # infinite numbers are refused when vectors are stored
            return RaggedRows(ends_here, (np.ascontiguousarray(stored, np.float32),))


def _path(settings: PrecomputedSettings, name: str, allowed: str) -> Path:
    """The file of a setting, refused if it is not given or does not exist."""
    path = getattr(settings, name)
    if path is None or not Path(path).is_file():
        problem = "is not given" if path is None else f"no file {path}"
        raise InputError(
            f"model.{name}: {problem}, and backend 'precomputed' needs it",
            allowed=allowed,
            fix=f"set model.{name}; {PATHS_START}",
        )
    return Path(path)


KINDS: dict[str, type[PrecomputedRows]] = {
    "dense": PrecomputedVectors,
    "sparse": PrecomputedWeights,
    "multivector": PrecomputedTokenVectors,
}
"""By the output of the settings."""
