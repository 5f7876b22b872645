"""Which weights does a config's model mean, and how does that model want to be used?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pipeline.config import EncoderSettings
from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.models import card as declared
from pipeline.models import files as model_files
from pipeline.models.card import Declared
from pipeline.models.families import Family, family_of, prompt
from pipeline.models.files import COUNT, TEXT, TEXTS, WHOLE, Files

Role = Literal["passages", "queries"]
ROLES: tuple[Role, ...] = ("passages", "queries")
Find = Callable[[str, str | None, bool], tuple[Files, dict[str, Any]]]
"""See `model_files.find`."""


COUNTING_ON = ("camembert", "mpnet", "data2vec-text", "longformer", "xmod", "ibert", "lilt")
"""Model types whose first position is the one after the padding id, as those of RoBERTa's kinds."""


@dataclass(frozen=True)
class CalibrationCorpus:
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
        dimension: How many a vector has, where that is known before the model is loaded.
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
    dimension: int | None = None
    trust_remote_code: bool = False
    corpus: CalibrationCorpus | None = None

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


def resolve(config: EncoderSettings, find: Find = model_files.find) -> Model:
    """Find a config's model and settle what the config leaves to it.

    Args:
        config: The model section.
        find: Finds and hashes its files; one that remembers does so once for several configs.

    Raises:
        InputError: There is no such model, its files are not whole, or a setting does not fit it.
    """
    device = _resolve_device(config)
    precision = "fp32" if config.precision == "fp16" and device == "cpu" else config.precision
    files, identity = find(config.name, config.revision, config.trust_remote_code)
    _check_whole(config, files)
    said, family, own = declared.read(files), family_of(config.name), _own_config(files)
    _check_modules(config, said)
    _check_attention(config, family, own)
    _check_kind(config, own)
    prompts = {role: _prompt(config, role, said, family) for role in ROLES}
    if not said.pools_prompt and any(map(any, prompts.values())):
        raise InputError(
            f"model '{config.name}' pools a text without its prompt, which no backend here does",
            fix="set model.query_instruction and model.passage_instruction to ''",
        )
    lengths: dict[Role, int] = {"passages": config.passage_max_length, "queries": config.query_max_length}
    most, pooling = _most_tokens(config, said, family, own), _pooling(config, said, family, own)
    truncate_dim = config.truncate_dim or said.truncate_dim
    return Model(
        name=config.name,
        files=files,
        identity=identity,
        pooling=pooling,
        normalize=config.normalize,
        precision=precision,
        device=device,
        prompts=prompts,
        max_lengths={role: min(lengths[role], most) for role in ROLES},
        pad_id=max(int(own.get("pad_token_id") or 0), 0),
        truncate_dim=truncate_dim,
        dimension=truncate_dim or _width(config, said, pooling, own),
        trust_remote_code=config.trust_remote_code,
    )


def _own_config(files: Files) -> dict[str, Any]:
    """The model's `config.json`, where all that is read here is what it must be."""
    return files.read_json(
        "config.json",
        architectures=TEXTS,
        max_position_embeddings=COUNT,
        model_type=TEXT,
        pad_token_id=WHOLE,
    )


def distrusted(name: str, example: str = "") -> InputError:
    """What to say of a model that comes with code, where the config does not let that run."""
    return InputError(
        f"model '{name}' runs only with Python files of its own{example}",
        fix="read them, then set model.trust_remote_code to true",
    )


def _check_whole(config: EncoderSettings, files: Files) -> None:
    """Refuse an adapter: the libraries load what it adapts from elsewhere, and no key would hold that."""
    if adapter := files.read_json(model_files.ADAPTER):
        raise InputError(
            f"model '{config.name}' is a PEFT adapter of '{adapter.get('base_model_name_or_path')}'",
            allowed="a model with all of its weights",
            fix="merge the two with peft's merge_and_unload, and save the result and the tokenizer",
        )


def _check_modules(config: EncoderSettings, said: Declared) -> None:
    """Refuse a chain of modules that the backend would not run as its model means it."""
    own = [module for module in said.modules if not module.startswith("sentence_transformers.")]
    if own and not config.trust_remote_code:
        raise distrusted(config.name, f", such as {own[0]}")
    if config.as_sentence_transformers:
        if said.chain and said.chain[0] not in ("Transformer", "StaticEmbedding"):
            raise InputError(
                f"model '{config.name}' begins with the module {said.chain[0]}",
                allowed="Transformer, StaticEmbedding",
                fix="encode with sentence-transformers yourself, and set model.backend to precomputed",
            )
        return
    unknown = [name for name in said.chain if name not in declared.PLAIN]
    if unknown:
        raise InputError(
            f"model '{config.name}' has a module {unknown[0]}, which backend '{config.backend}' does not run",
            fix="set model.backend to sentence-transformers",
        )


def _check_attention(config: EncoderSettings, family: Family | None, own: dict[str, Any]) -> None:
    """Refuse to run a decoder as a causal one whose tokens were trained to see those after them."""
    if family is None or not family.bidirectional:
        return
    if not config.trust_remote_code and own.get("is_causal") is not False:
        raise InputError(
            f"model '{config.name}' attends in both directions, which only Python files of its own do",
            allowed='those, or "is_causal": false in its config.json',
            fix="read them, then set model.trust_remote_code to true",
        )


def _check_kind(config: EncoderSettings, own: dict[str, Any]) -> None:
    """Refuse to run an encoder together with its decoder, which asks for a text of its own."""
    if own.get("model_type") in ("t5", "mt5", "umt5", "longt5") and not config.as_sentence_transformers:
        raise InputError(
            f"model '{config.name}' is of the type {own['model_type']}, "
            f"whose encoder backend '{config.backend}' does not run alone",
            fix="set model.backend to sentence-transformers",
        )


def _prompt(config: EncoderSettings, role: Role, said: Declared, family: Family | None) -> tuple[str, str]:
    """What stands before and after each text: the config's word, else the model's, else its family's."""
    given = config.query_instruction if role == "queries" else config.passage_instruction
    if given is None and role in said.prompts:
        return said.prompts[role], ""
    if family is None:
        return given or "", ""
    known = family.query_instruction if role == "queries" else family.passage_instruction
    form = family.query_format if role == "queries" else "{}{}"
    return prompt(form, known if given is None else given)


def _most_tokens(config: EncoderSettings, said: Declared, family: Family | None, own: dict[str, Any]) -> int:
    """How many tokens of a text the model may be given: by its positions, its family, its own word.

    Only sentence-transformers heeds the last: FlagEmbedding does not read it.
    """
    limits = [positions(own), family.max_length if family else None]
    if config.as_sentence_transformers:
        limits.append(said.max_length)
    return min(limit for limit in limits if limit)


def positions(own: dict[str, Any]) -> int:
    """How many tokens the model has positions for, by its `config.json`; some count on from padding."""
    most = int(own.get("max_position_embeddings") or 1 << 30)
    kind, pad = str(own.get("model_type")), own.get("pad_token_id")
    counts_on = "roberta" in kind or kind in COUNTING_ON
    return most - (0 if not counts_on else 2 if pad is None else int(pad) + 1)


def _pooling(config: EncoderSettings, said: Declared, family: Family | None, own: dict[str, Any]) -> str:
    """The config's pooling, else the model's own, else its family's, else its library's default."""
    pooling = config.pooling or said.pooling or (family.pooling if family else _usual_pooling(config, own))
    if not config.as_sentence_transformers and pooling not in ("cls", "mean", "last_token"):
        raise InputError(
            f"model '{config.name}' declares pooling '{pooling}'",
            allowed="cls, mean, last_token",
            fix="set model.backend to sentence-transformers, or model.pooling to what it was trained with",
        )
    return pooling


def _usual_pooling(config: EncoderSettings, own: dict[str, Any]) -> str:
    """What the library takes for a model nobody says anything about."""
    if any(str(name).endswith("ForCausalLM") for name in own.get("architectures") or []):
        return "last_token"
    return "mean" if config.as_sentence_transformers else "cls"


def _width(config: EncoderSettings, said: Declared, pooling: str, own: dict[str, Any]) -> int | None:
    """The network's width, where vectors have no other: by no module, code or several poolings."""
    width = own.get("hidden_size")
    plain = set(said.chain) <= {*declared.PLAIN} and "+" not in pooling and not config.trust_remote_code
    return width if plain and isinstance(width, int) else None


def _resolve_device(config: EncoderSettings) -> str:
    """`cpu` or `cuda:N`; `auto` takes the first GPU if there is one and the backend computes there."""
    if config.device == "auto":
        return "cuda:0" if config.on_gpu and _gpus() else "cpu"
    return "cuda:0" if config.device == "cuda" else config.device


def _gpus() -> int:
    """How many CUDA devices the driver shows to a PyTorch that may use them; found without importing it."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        if metadata.version("torch").endswith("+cpu"):
            return 0
    return len(machine.gpus())
