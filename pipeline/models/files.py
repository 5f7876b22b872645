"""A model's files: in a bundled package, a local folder or on the hub, and what identifies their content."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from pipeline.core import hub
from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Facts
from pipeline.storage.hashing import file_changed, hash_file, hash_json

TOKENIZER = ("*.json", "*.txt", "*.model", "*.codes", "*.spm", "*.tiktoken", "*.tokenizer", "*.jinja")
"""Patterns of the tokenizer's files; they match some other small files too."""
FILES = ("*.safetensors", "*.safetensors.index.json", *TOKENIZER, "[0-9]_*/*.json", "[0-9]_*/*.bin")
"""Patterns of the files fetched for a hub model: weights, tokenizer, configs."""
NOT_READ = ("data_config.json", "generation_config.json", "trainer_state.json", "requirements.txt")
"""Files that match these patterns, and that change no vectors and no scores."""
TOKEN_IDS = "tokens"
"""What the files of the tokenizer shape, beside outputs."""
LIBRARY_SETTINGS = "config_sentence_transformers.json"
UNREAD = ("__version__",)
"""Its settings that change no vectors and no scores."""
KEYED = ("prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim")
"""Its settings that shape dense vectors only by what keys hold of them otherwise, such as a role's prompt."""
TOKEN_HEAD, WORD_HEAD = "colbert_linear.pt", "sparse_linear.pt"
"""Files of BGE-M3's heads; if one is missing, FlagEmbedding takes random weights for both."""
STANFORD = "artifact.metadata"
"""The file that says how Stanford's ColBERT is used."""
HEADS = (TOKEN_HEAD, WORD_HEAD, STANFORD)
"""Files that shape other outputs than dense vectors."""
SMALL = (*TOKENIZER, *HEADS)
"""Patterns of the files that are read before a model is loaded."""
CODE = "*.py"
"""The pattern fetched in addition if the model's own code may run."""
CONFIGS = ("config.json", "tokenizer_config.json", "processor_config.json")
"""Files, of the model's folder and of its modules' folders, that may name classes of its own."""
PREFERRED = ("model.safetensors", "model.safetensors.index.json")
"""If one of these exists, transformers ignores the `.bin` files beside it."""
ADAPTER = "adapter_config.json"
"""The file in which peft names the base model of an adapter."""
ADAPTER_FOLDER = "peft_adapter"
"""The folder of an adapter's two files, in a folder that has its base's files too."""
ONNX = ("*.onnx", "onnx/*.onnx")
"""Patterns of ONNX files."""


class JsonType(NamedTuple):
    """A type that a JSON file, or one of its fields, must have: a description and a check."""

    description: str
    accepts: Callable[[object], bool]


OBJECT = JsonType("a JSON object", lambda value: isinstance(value, dict))
MODULES = JsonType(
    "a JSON list of objects",
    lambda value: isinstance(value, list) and all(isinstance(entry, dict) for entry in value),
)
FLAG = JsonType("true or false", lambda value: isinstance(value, bool))
TEXT = JsonType("a text", lambda value: isinstance(value, str))
TEXTS = JsonType("a list of texts", lambda value: isinstance(value, list) and all(map(TEXT.accepts, value)))
INTEGER = JsonType("a whole number", lambda value: type(value) is int)
COUNT = JsonType("a whole number of 0 or more", lambda value: type(value) is int and value >= 0)
SIZE = JsonType(
    "a number of 0 or more",
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf,
)


@dataclass(frozen=True)
class Files:
    """A model's files: those of a local folder with their SHA-256, or some of those of a hub commit.

    `code` has the hub repositories that it takes Python files from, each with its commit, if they may run.
    `adapter` is the kind of the adapter in `ADAPTER_FOLDER`, and `base` the folder of its base model.
    """

    small_files: Path  # a folder with at least the files that are read before a model is loaded
    repo: str = ""
    commit: str = ""
    patterns: tuple[str, ...] = (*FILES, *HEADS)
    hashes: dict[str, str] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    adapter: str = ""
    base: str = ""

    def identity(self, shaped: str) -> Facts:
        """What identifies, in artifact keys, the content of the files that shape an output.

        `shaped` is one of `model.output`, or `TOKEN_IDS`.
        """
        hashes, unread = {**self.hashes}, {*UNREAD}
        if shaped == TOKEN_IDS:  # each file but the weights
            patterns = (*TOKENIZER, CODE)
            hashes = {name: hashes[name] for name in hashes if any(map(PurePath(name).match, patterns))}
        if shaped == "dense":
            hashes, unread = {name: hashes[name] for name in hashes if name not in HEADS}, {*KEYED, *UNREAD}
        if shaped != TOKEN_IDS and LIBRARY_SETTINGS in hashes:
            del hashes[LIBRARY_SETTINGS]
            settings = self.read_json(LIBRARY_SETTINGS)
            if shaping := {name: value for name, value in settings.items() if name not in unread}:
                hashes[LIBRARY_SETTINGS] = hash_json(shaping)
        identity = {"hub": self.repo, "commit": self.commit} if self.repo else {"files": hashes}
        return {**identity, **({"code": self.code} if self.code else {})}

    def check_text_files(self) -> None:
        """As `check`, of the files of a local folder that may shape the tokenizer."""
        for name, hash_ in self.identity(TOKEN_IDS).get("files", {}).items():
            path = self.small_files / name
            if not path.is_file() or hash_file(path) != hash_:
                raise file_changed(f"model folder {self.small_files}: {name}")

    def check(self) -> None:
        """Raise an `InputError` if a file was written, added or deleted after it was looked at.

        That is a file of a local folder, or one in a repository that the model takes Python files from.
        """
        hashes = {} if self.repo else hash_files(self.small_files, self.hashes)
        if differing := dict(hashes.items() ^ self.hashes.items()):
            raise file_changed(f"model folder {self.small_files}: {min(differing)}")
        # small files of a hub model lie where its name was resolved, which may be another machine
        if self.code and other_repositories(replace(self, small_files=self.folder()).classes()) != self.code:
            raise file_changed(f"the Python files of {', '.join(self.code)}")

    def classes(self) -> list[str]:
        """The classes, of Python files that come with the model, that its configuration names; sorted."""
        modules = self.read_json("modules.json", MODULES)
        folders = {"", *(f"{entry['path']}/" for entry in modules if entry.get("path"))}
        classes = {str(module.get("type")) for module in modules if "--" in str(module.get("type"))}
        for path in (folder + name for folder in sorted(folders) for name in CONFIGS):
            mapped = self.read_json(path).get("auto_map")
            for value in mapped.values() if isinstance(mapped, dict) else [mapped]:
                # of a tokenizer's slow and fast class, one may be null
                names = value if isinstance(value, list) else [value]
                classes.update(name for name in names if isinstance(name, str))
        return sorted(classes)

    @property
    def has_weights(self) -> bool:
        """Whether there are weights of a torch model; of a model on the hub, that is taken for granted."""
        return bool(self.repo) or any(name.endswith((".safetensors", ".bin")) for name in self.hashes)

    def folder(self) -> Path:
        """The folder with all files; those of a hub model are fetched if they are not cached."""
        if not self.repo:
            return self.small_files
        folder = hub.snapshot(self.repo, self.commit, "model", self.patterns)
        if any((folder / name).is_file() for name in PREFERRED):
            return folder
        return hub.snapshot(self.repo, self.commit, "model", (*self.patterns, "*.bin"))  # an older repository

    def read_json(self, name: str, kind: JsonType = OBJECT, /, **fields: JsonType) -> Any:
        """Content of a JSON file, an object or what `kind` says; empty if there is none.

        The path `name` is relative to the model's folder. The given fields may also be null or missing.
        """
        path = self.small_files / name
        if not path.is_file():
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise damaged(f"{path}: not valid JSON: {error}") from None
        if not kind.accepts(content):
            raise damaged(f"{path} is {short_repr(content)}", kind.description)
        for key, expected in fields.items():
            value = content.get(key)
            if value is not None and not expected.accepts(value):
                raise damaged(f"{path}: '{key}' is {short_repr(value)}", f"{expected.description}, or null")
        return content


def damaged(found: str, allowed: str = "") -> InputError:
    """The error for a model whose files are damaged."""
    return InputError(found, allowed=allowed, fix="restore the model's files")


def untrusted_code(name: str, example: str = "") -> InputError:
    """The error for a model that needs its own Python files, where the config does not let them run."""
    return InputError(
        f"model '{name}' runs only with Python files of its own{example}",
        fix="read them, then set model.trust_remote_code to true",
    )


def hash_files(folder: Path, known: Iterable[str] = ()) -> dict[str, str]:
    """The SHA-256 of every file of a model folder that can change its vectors, by its relative path.

    Those that are `known` are among them if they are there. A file outside the folder is refused: a
    cluster's node, which gets a copy, would write it outside too.
    """
    also = filter(Path.is_file, (folder / name for name in known))
    paths = {os.path.relpath(path, folder): path for path in (*shaping_files(folder), *also)}
    if outside := [name for name in paths if Path(name).parts[0] == os.pardir]:
        raise InputError(
            f"model folder {folder}: it names {outside[0]}, outside the folder",
            allowed="files in the folder itself",
            fix="check where the model comes from; copy the files it needs into the folder",
        )
    return {name: hash_file(path) for name, path in paths.items()}


def shaping_files(folder: Path) -> list[Path]:
    """The files of a model folder that can change its vectors, sorted."""
    files = Files(folder)
    preferred = any((folder / name).is_file() for name in PREFERRED)
    weights = files.read_json("config.json").get("transformers_weights")
    explicit = [weights] if isinstance(weights, str) else []
    indexes = ["model.safetensors.index.json", *([] if preferred else ["pytorch_model.bin.index.json"])]
    indexes += [name for name in explicit if name.endswith(".index.json")]
    maps = [files.read_json(name).get("weight_map") for name in indexes]
    of_maps = {str(name) for index in maps if isinstance(index, dict) for name in index.values()}
    named = {folder / name for name in (*of_maps, *explicit)}  # which may lie in subfolders
    absent = [path.name for path in sorted(named) if not path.is_file()]
    if absent and not (folder / PREFERRED[0]).is_file():
        raise damaged(f"model folder {folder} lacks {absent[0]}, which the index of its weights names")
    shaping = {*folder.glob("*.safetensors"), *filter(Path.is_file, named)}
    if not preferred:
        shaping.update(folder.glob("*.bin"))
    places = [entry["path"] for entry in files.read_json("modules.json", MODULES) if entry.get("path")]
    places += files.read_json("router_config.json", types=OBJECT).get("types") or ()
    declared = [folder / str(place) for place in places]
    for module_folder in declared:
        shaping.update(module_folder.rglob("*.safetensors"))
    described = any((folder / name).is_file() for name in ("config.json", "modules.json", ADAPTER))
    onnx = any(any(folder.glob(pattern)) for pattern in ONNX)
    if not (shaping or onnx) or not described:
        missing = "config.json" if shaping or onnx else "weights (*.safetensors or *.bin)"
        raise InputError(
            f"model folder {folder}: no {missing}",
            allowed="a folder written by save_pretrained, or a snapshot of the hub",
            fix="check the path",
        )
    for pattern in (*TOKENIZER, *HEADS, f"{ADAPTER_FOLDER}/*"):
        shaping.update(folder.glob(pattern))
    shaping.update(folder.rglob(CODE))
    for module_folder in (*folder.glob("[0-9]_*"), *declared):
        for pattern in (*TOKENIZER, CODE, "*.safetensors", "*.bin"):
            shaping.update(module_folder.rglob(pattern))
    return sorted(path for path in shaping if path.name not in NOT_READ)


def other_repositories(names: Iterable[str]) -> dict[str, str]:
    """The hub repositories that named classes come from, each with the commit that transformers loads.

    That is what the branch `main` names now.

    Raises:
        InputError: A class comes from another folder of this machine.
    """
    repositories = sorted({name.partition("--")[0] for name in names if "--" in name})
    for repository in repositories:
        if Path(repository).is_dir() or Path(repository).is_absolute():
            raise InputError(
                f"the model takes Python files from another folder, {repository}",
                allowed="files in the folder itself, or in a repository of the hub",
                fix="read them, copy them into the model's folder, and name them in auto_map without '--'",
            )
    return {repository: hub.resolve_commit(repository, None, "model") for repository in repositories}
