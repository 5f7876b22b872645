"""What all backends share that read files which another program wrote: an API, a cluster or another tool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipeline.config import ModelSettings, setting
from pipeline.config.settings import LocalPath
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Collection
from pipeline.models.model import ROLES, Role
from pipeline.storage.hashing import file_changed, hash_user_file

if TYPE_CHECKING:
    import pyarrow as pa


class PrecomputedFiles(ModelSettings):
    """Settings of all backends that read files which another program wrote."""

    backend: Literal["precomputed"] = ModelSettings.narrowed("backend", "precomputed")
    passages: LocalPath | None = setting(
        None, "a file with a row for each passage, in corpus order", shapes="passages", keyed=False
    )
    queries: LocalPath | None = setting(
        None, "a file with a row for each query, in query order", shapes="queries", keyed=False
    )

    def paths(self, what: str) -> dict[Role, Path]:
        """The files, of which both must be given and exist; `what` says what they are."""
        given: dict[Role, str | None] = {"passages": self.passages, "queries": self.queries}
        paths = {}
        for role in ROLES:
            name = given[role]
            if name is None or not Path(name).is_file():
                found = "is not given" if name is None else f"no file {name}"
                raise InputError(
                    f"model.{role}: {found}, and backend 'precomputed' needs it",
                    allowed=f"a {what}, one row for each of the {role}",
                    fix=f"set model.{role}; a relative path is taken from the config file's folder",
                )
            paths[role] = Path(name)
        return paths


@dataclass(frozen=True)
class Precomputed(ABC):
    """One file for each role, rows in the collection's order."""

    paths: dict[Role, Path]

    def recipe(self, role: Role) -> dict[str, Any]:
        """The model's part of the key of what is made of texts: the hash of their file."""
        return {"file": self._hashes[role]}

    @cached_property
    def _hashes(self) -> dict[Role, str]:
        """SHA-256 of each file, computed once for all benchmarks of a sweep."""
        return {role: hash_user_file(path) for role, path in self.paths.items()}

    @abstractmethod
    def count(self, role: Role) -> int:
        """The number of rows of a file."""

    @abstractmethod
    def match_roles(self) -> None:
        """Refuse two files that cannot be of one model."""

    @abstractmethod
    def read(self, role: Role, rows: range, ids: pa.ChunkedArray) -> Any:
        """Consecutive rows, as a model would give them; `ids` are the texts' ids, Arrow strings."""

    def match(self, collection: Collection) -> None:
        """Refuse files whose rows do not fit the collection, or each other."""
        counts: dict[Role, int] = {"passages": len(collection.passages), "queries": len(collection.queries)}
        for role, count in counts.items():
            rows = self.count(role)
            if rows != count:
                raise InputError(
                    f"model.{role}: {self.paths[role]} has {counted(rows, 'row')}",
                    allowed=f"{count:,}, one for each of the {role} in the collection's order",
                    fix="'benchmarco data' counts the texts: queries without judgments are left out",
                )
        self.match_roles()

    def take(self, role: Role, rows: range, ids: pa.ChunkedArray) -> Any:
        """`read` of files that `match`; a file that changed after it was hashed is refused."""
        found = self.read(role, rows, ids)
        if hash_user_file(self.paths[role]) != self._hashes[role]:
            raise file_changed(str(self.paths[role]))
        return found
