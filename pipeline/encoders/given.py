"""What all backends share that read files which another program wrote: an API, a cluster or another tool."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.config.model import PrecomputedSettings
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Int64, Texts
from pipeline.encoders.source import RowSource
from pipeline.formats.npy import read_ids
from pipeline.models.model import ROLES, Role
from pipeline.storage.hashing import VerifiedFile, file_changed, hash_user_file

if TYPE_CHECKING:
    import pyarrow as pa


def row_paths(settings: PrecomputedSettings, what: str) -> dict[Role, Path]:
    """The files of rows, of which both must be given and exist; `what` says what they are."""
    given: dict[Role, str | None] = {"passages": settings.passages, "queries": settings.queries}
    return {role: _path(role, given[role], f"a {what}, one row for each of the {role}") for role in ROLES}


def id_paths(settings: PrecomputedSettings) -> dict[Role, Path]:
    """The files of ids that are given, which must exist."""
    given: dict[Role, str | None] = {"passages": settings.passage_ids, "queries": settings.query_ids}
    names: dict[Role, str] = {"passages": "passage_ids", "queries": "query_ids"}
    allowed = "a text file with an id on each line"
    return {role: _path(names[role], path, allowed) for role, path in given.items() if path}


def _path(name: str, path: str | None, allowed: str) -> Path:
    """The file of a setting, refused if it is not given or does not exist."""
    if path is None or not Path(path).is_file():
        found = "is not given" if path is None else f"no file {path}"
        raise InputError(
            f"model.{name}: {found}, and backend 'precomputed' needs it",
            allowed=allowed,
            fix=f"set model.{name}; a relative path is taken from the config file's folder",
        )
    return Path(path)


@dataclass(frozen=True)
class Precomputed(RowSource):
    """One file for each role, rows in the collection's order, or with ids.

    Attributes:
        paths: The files of rows.
        id_paths: The files of ids, of the roles that have one.
    """

    stored = True
    unit_length = True
    paths: dict[Role, Path]
    id_paths: dict[Role, Path] = field(default_factory=dict)
    _rows: dict[Role, Int64] = field(default_factory=dict, init=False)  # of each text, where there are ids

    def recipe(self, role: Role) -> dict[str, Any]:
        """The model's part of the key of what is made of texts: the hashes of their files."""
        ids = {"ids": self._id_hashes[role]} if role in self._id_hashes else {}
        return {"file": self.files[role].hash, **ids}

    @cached_property
    def files(self) -> dict[Role, VerifiedFile]:
        """The files of rows, each hashed once for all benchmarks of a sweep."""
        return {role: VerifiedFile(path) for role, path in self.paths.items()}

    @cached_property
    def _id_hashes(self) -> dict[Role, str]:
        return {role: hash_user_file(path) for role, path in self.id_paths.items()}

    @abstractmethod
    def count(self, role: Role) -> int:
        """The number of rows of a file."""

    @abstractmethod
    def match_roles(self) -> None:
        """Refuse two files that cannot be of one model."""

    @abstractmethod
    def read(self, role: Role, rows: Int64, ids: pa.ChunkedArray) -> Any:
        """Some rows of a file, int64 [n], as a model would give them; read from `files`, which checks them.

        `ids` are the texts' ids, Arrow strings [n], for messages.
        """

    def own_ids(self, role: Role) -> pa.Array | None:
        """The ids of the rows that a file of rows itself holds, Arrow strings; None if it holds none."""
        return None

    def match(self, collection: Collection) -> None:
        """Refuse files whose rows or ids do not fit the collection, or each other."""
        texts: dict[Role, Texts] = {"passages": collection.passages, "queries": collection.queries}
        for role, of_role in texts.items():
            ids = self._ids(role)
            if ids is not None:
                self._rows[role] = self._find(role, of_role.ids, ids)
                continue
            rows = self.count(role)
            if rows != len(of_role):
                raise InputError(
                    f"model.{role}: {self.paths[role]} has {counted(rows, 'row')}",
                    allowed=f"{len(of_role):,}, one for each of the {role} in the collection's order",
                    fix="'benchmarco data CONFIG --export FOLDER' writes that order; or give ids",
                )
        self.match_roles()

    def _ids(self, role: Role) -> pa.Array | None:
        """The ids of the rows of a file, Arrow strings [rows]; None if none are given."""
        path = self.id_paths.get(role)
        if path is None:
            return self.own_ids(role)
        ids = read_ids(path)
        if hash_user_file(path) != self._id_hashes[role]:
            raise file_changed(str(path))
        return ids

    def _find(self, role: Role, wanted: pa.ChunkedArray, ids: pa.Array) -> Int64:
        """int64 [texts]: the row of each text; refused if one has none, or ids are wrong."""
        import pyarrow.compute as pc

        where = f"the ids of model.{role}, {self.id_paths.get(role, self.paths[role])},"
        rows = self.count(role)
        if len(ids) != rows:
            found = f"{where} are {len(ids):,}, and {self.paths[role]} has {counted(rows, 'row')}"
            raise InputError(found, allowed="an id for each row", fix="write both files again")
        counts = pc.value_counts(ids)
        if len(counts) != len(ids):
            twice = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
            found = f"{where} hold '{twice}' more than once"
            raise InputError(found, allowed="each id once", fix="write both files again")
        found = pc.index_in(wanted, value_set=ids)
        if found.null_count:
            first = wanted.filter(pc.is_null(found))[0].as_py()
            raise InputError(
                f"{where} lack {found.null_count:,} of the {role}, such as '{first}'",
                allowed=f"the ids of all {role}, in any order, and others besides",
                fix="encode these texts too; 'benchmarco data CONFIG --export FOLDER' writes all",
            )
        return np.asarray(found.to_numpy(), np.int64)

    def take(self, role: Role, rows: range, ids: pa.ChunkedArray) -> Any:
        """What consecutive texts are made into; `match` is called before it.

        `ids` are those of the texts, Arrow strings [rows]. A file changed since it was hashed is refused.
        """
        chosen = self._rows[role][rows.start : rows.stop] if role in self._rows else np.array(rows, np.int64)
        return self.read(role, chosen, ids)
