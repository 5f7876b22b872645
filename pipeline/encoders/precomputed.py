"""The `precomputed` backend: vectors people already have, from an API, a cluster or another tool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.config import ModelSettings, VectorSettings, setting
from pipeline.config.settings import LocalPath
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.core.records import Collection, Embeddings, Float32, Texts
from pipeline.encoders.batching import Usage
from pipeline.models.model import ROLES, Role
from pipeline.storage.disk import changed, hash_given
from pipeline.storage.vectors import forget


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
    """One `.npy` file [texts, dimension] for each role, rows in the collection's order.

    Attributes:
        paths: Each role's file.
    """

    paths: dict[Role, Path]

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

    def load(self) -> None:
        """Map both files into memory and compare their dimensions."""
        passages, queries = self._arrays["passages"], self._arrays["queries"]
        if passages.shape[1] != queries.shape[1]:
            raise InputError(
                f"model.passages has {passages.shape[1]} dimensions and model.queries {queries.shape[1]}",
                allowed="the same for both",
                fix="encode both with one model",
            )

    def match(self, collection: Collection) -> None:
        """Refuse files with more or fewer rows than there are texts, before anything is made of either.

        Raises:
            InputError: One has.
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

    def encode(self, texts: Texts, rows: range, role: Role, usage: Usage, bar: Bar) -> Float32:
        """See `pipeline.encoders.Encoder.encode`; `match` comes before it.

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
            first = rows.start + int(np.argmax(zero))
            raise InputError(
                f"model.{role}: {self.paths[role]}: row {first} ('{texts.ids[first]}') is all zeros",
                fix="encode that text again: a zero vector has no direction",
            )
        usage.texts += len(vectors)
        bar.update(len(vectors))
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
