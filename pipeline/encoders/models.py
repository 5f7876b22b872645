"""Which weights does a config's model mean, and how does that model want to be used?"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pipeline.config import ModelConfig
from pipeline.encoders import declared, model_files
from pipeline.encoders.declared import Declared
from pipeline.encoders.families import Family, family_of, prompt
from pipeline.encoders.model_files import Files
from pipeline.errors import InputError

Role = Literal["passages", "queries"]
ROLES: tuple[Role, ...] = ("passages", "queries")


@dataclass(frozen=True)
class Corpus:
    """The passages an int8 model is calibrated on.

    Attributes:
        identity: What they are, as it stands in keys.
        path: Their Arrow file; it is there when a model is loaded.
    """

    identity: dict[str, Any]
    path: Path


@dataclass(frozen=True)
class Model:
    """A config's model, resolved: everything that shapes its vectors.

    Attributes:
        name: As the config says it.
        files: Where they are, or can be fetched.
        identity: Hub id and commit, or the SHA-256 of each file that shapes vectors.
        pooling: `cls`, `mean` or `last_token`; with sentence-transformers any that it knows.
        normalize: Whether vectors are scaled to length 1.
        precision: What is really computed in: a CPU runs `fp16` as `fp32`, as FlagEmbedding does.
        device: `cpu` or `cuda:N`.
        prompts: For each role what stands before and after each text.
        max_lengths: For each role the tokens kept, never more than the model has positions for.
        pad_id: The padding token.
        truncate_dim: Dimensions kept of each vector (Matryoshka); None keeps all.
        trust_remote_code: Whether Python files that come with the model may run.
        corpus: What an int8 model is calibrated on.
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
    truncate_dim: int | None = None
    trust_remote_code: bool = False
    corpus: Corpus | None = None

    def recipe(self, role: Role) -> dict[str, Any]:
        """What of the model stands in the key of vectors made in `role`."""
        return {
            "identity": self.identity,
            "pooling": self.pooling,
            "precision": self.precision,
            "prompt": list(self.prompts[role]),
            "max_length": self.max_lengths[role],
            "truncate_dim": self.truncate_dim,
        }


def resolve(config: ModelConfig, precisions: Sequence[str], corpus: Corpus | None = None) -> Model:
    """Find a config's model and settle what the config leaves to it.

    Args:
        config: The model section.
        precisions: Those the backend computes in.
        corpus: What an int8 model is calibrated on.

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
    files, identity = model_files.find(config)
    said, family, own = declared.read(files), family_of(config.name), files.read_json("config.json")
    _check_modules(config, said)
    prompts = {role: _prompt(config, role, said, family) for role in ROLES}
    if not said.pools_prompt and any(map(any, prompts.values())):
        raise InputError(
            f"model '{config.name}' pools a text without its prompt, which no backend here does",
            fix="set model.query_instruction and model.passage_instruction to ''",
        )
    lengths: dict[Role, int] = {"passages": config.passage_max_length, "queries": config.query_max_length}
    most = _most_tokens(config, said, family, own)
    return Model(
        name=config.name,
        files=files,
        identity=identity,
        pooling=_pooling(config, said, family, own),
        normalize=config.normalize,
        precision=precision,
        device=device,
        prompts=prompts,
        max_lengths={role: min(lengths[role], most) for role in ROLES},
        pad_id=int(own.get("pad_token_id") or 0),
        truncate_dim=config.truncate_dim or said.truncate_dim,
        trust_remote_code=config.trust_remote_code,
        corpus=corpus,
    )


def _check_modules(config: ModelConfig, said: Declared) -> None:
    """Refuse a chain of modules that the backend would not run as its model means it."""
    own = [module for module in said.modules if not module.startswith("sentence_transformers.")]
    if own and not config.trust_remote_code:
        raise InputError(
            f"model '{config.name}' runs only with Python files of its own, such as {own[0]}",
            fix="read them, then set model.trust_remote_code to true",
        )
    if config.backend == "sentence-transformers":
        if said.chain and said.chain[0] not in ("Transformer", "StaticEmbedding"):
            raise InputError(
                f"model '{config.name}' begins with the module {said.chain[0]}",
                allowed="Transformer, StaticEmbedding",
                fix="encode with sentence-transformers yourself, and set model.backend to precomputed",
            )
        return
    unknown = [name for name in said.chain if name not in ("Transformer", "Pooling", "Normalize", "Dropout")]
    if unknown:
        raise InputError(
            f"model '{config.name}' has a module {unknown[0]}, which backend '{config.backend}' does not run",
            fix="set model.backend to sentence-transformers",
        )


def _prompt(config: ModelConfig, role: Role, said: Declared, family: Family | None) -> tuple[str, str]:
    """What stands before and after each text: the config's word, else the model's, else its family's."""
    given = config.query_instruction if role == "queries" else config.passage_instruction
    if given is None and role in said.prompts:
        return said.prompts[role], ""
    if family is None:
        return given or "", ""
    known = family.query_instruction if role == "queries" else family.passage_instruction
    form = family.query_format if role == "queries" else "{}{}"
    return prompt(form, known if given is None else given)


def _most_tokens(config: ModelConfig, said: Declared, family: Family | None, own: dict[str, Any]) -> int:
    """How many tokens of a text the model may be given: by its positions, its family, its own word.

    Only sentence-transformers heeds the last: FlagEmbedding does not read it.
    """
    limits = [_positions(own), family.max_length if family else None]
    if config.backend == "sentence-transformers":
        limits.append(said.max_length)
    return min(limit for limit in limits if limit)


def _positions(own: dict[str, Any]) -> int:
    """How many tokens the model has positions for, by its `config.json`."""
    positions = int(own.get("max_position_embeddings") or 1 << 30)
    kind = str(own.get("model_type"))
    return positions - (2 if "roberta" in kind or kind in ("camembert", "mpnet") else 0)


def _pooling(config: ModelConfig, said: Declared, family: Family | None, own: dict[str, Any]) -> str:
    """The config's pooling, else the model's own, else its family's, else its library's default."""
    pooling = config.pooling or said.pooling or (family.pooling if family else _usual_pooling(config, own))
    if config.backend != "sentence-transformers" and pooling not in ("cls", "mean", "last_token"):
        raise InputError(
            f"model '{config.name}' declares pooling '{pooling}'",
            allowed="cls, mean, last_token",
            fix="set model.backend to sentence-transformers, or model.pooling to what it was trained with",
        )
    return pooling


def _usual_pooling(config: ModelConfig, own: dict[str, Any]) -> str:
    """What the library takes for a model nobody says anything about."""
    if any(str(name).endswith("ForCausalLM") for name in own.get("architectures") or []):
        return "last_token"
    return "mean" if config.backend == "sentence-transformers" else "cls"


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
