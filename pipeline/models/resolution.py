"""Resolution of a config's model: its files, and the settings that the config leaves to them.

For pooling, prompts and lengths, the config counts first, then the model's files, then its family, then the
default of the library that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pipeline.config import EncoderSettings
from pipeline.config.model import OnnxSettings
from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Role, TextPair
from pipeline.models.card import (
    TASK_ADAPTERS,
    WIDTH_PRESERVING,
    Family,
    ModelCard,
    family_of,
    max_positions,
    prompt_parts,
    read_card,
)
from pipeline.models.files import Files, damaged
from pipeline.models.late_interaction import M3, LateInteraction, late_interaction
from pipeline.models.model import Origin, ResolvedModel, SettingWithOrigin
from pipeline.models.onnx_file import POOLINGS, TEXT_VECTORS, TOKEN_VECTORS, OnnxFile, find_onnx
from pipeline.models.support import check_support, check_torch
from pipeline.models.text_settings import TASKS, TEXTS
from pipeline.models.tokenizer import ModelTokenizer, TokenizerSettings, prepare_tokenizer, token_counter

PROMPT_NAMES: dict[Role, tuple[str, ...]] = {
    "queries": ("query", "retrieval.query", "Retrieval-query", "s2p_query"),
    "passages": ("document", "passage", "corpus", "retrieval.passage", "Retrieval-document"),
}
"""Names that models give to the prompt of a role, in the order in which they are tried: those that
sentence-transformers looks for, then those in the files of jina-v3, EmbeddingGemma and stella."""
SINGULAR: dict[Role, str] = {"queries": "query", "passages": "passage"}
DEFAULT_LENGTH = 512
"""Tokens kept of a text where neither config nor model says how many: FlagEmbedding's default."""


class ModelFacts(NamedTuple):
    """What is known of a model: it decides the settings that the config leaves open."""

    files: Files  # the model's, with those of its ONNX file
    card: ModelCard  # what they say
    family: Family | None  # what is known of a model of its name
    late: LateInteraction | None  # how a multi-vector model is used; None for others
    onnx: OnnxFile | None  # the file that is run; None with another backend


def resolve_model(
    config: EncoderSettings, files: Files, device: str, precision: str, cache: Path | None
) -> ResolvedModel:
    """Decide every setting of a model that the config leaves open, or refuse the model.

    The tokenizer is kept in the folder `cache` if the user's store cannot be written.
    """
    known = _read(config, files)
    files, card, family = known.files, known.card, known.family
    prompts, hint = _prompts(config, known)
    pooling = _pooling(config, known) if config.output == "dense" else None
    end_tokens = card.end_tokens if pooling and pooling.value == "last_token" else ("", "")
    made_by = TokenizerSettings(config.name, config.trust_remote_code, end_tokens)
    routes = dict.fromkeys(card.routes.values())
    by_route = {route: prepare_tokenizer(files, route, made_by, cache) for route in routes}
    tokenizers = {role: by_route[route] for role, route in card.routes.items()}
    lengths = _max_tokens(config, known, prompts, tokenizers)
    keeps_width = pooling and "+" not in str(pooling.value) and not config.trust_remote_code
    model = ResolvedModel(
        name=config.name,
        files=files,
        identity=files.identity(config.output),
        precision=precision,
        device=device,
        prompts={role: prompt for role, (prompt, _) in prompts.items()},
        max_lengths={role: int(length.value) for role, length in lengths.items()},
        pad_id=card.pad_id,
        tokenizer=tokenizers["passages"],
        tokenizers=tokenizers,
        trust_remote_code=config.trust_remote_code,
        card=card,
        output=config.output,
        pooling=str(pooling.value) if pooling else "",
        dimension=card.width if keeps_width else None,
        truncate_dim=(config.truncate_dim or card.settings.get("truncate_dim") or None) if pooling else None,
        onnx=known.onnx,
        similarity=_similarity(card) if pooling and card.similarity else "",
        hint=hint,
        mean_over_tokens=known.late is not None and known.late.mean,
    )
    if not card.pools_prompt or (family and not family.pools_prompt):
        model = replace(model, skipped=_skipped(config, model))
    decided = _decided(config, model, prompts, lengths, pooling)
    guesses = [name for name, used in decided.items() if used.source == "guess"]
    return replace(model, decided=decided, guessed=_advice(guesses, model.pooling) if guesses else "")


def _read(config: EncoderSettings, files: Files) -> ModelFacts:
    """What is known of a model before its settings are decided; refuses one that would not run as it says."""
    is_m3 = config.output == "multivector" and not config.as_sentence_transformers
    card = read_card(files, "dense" if is_m3 else config.output, config.name)
    if files.adapter:
        check_torch(config, "is a PEFT adapter")
    late, onnx = None, None
    if config.output == "multivector":
        late = M3 if is_m3 else late_interaction(card, config.name)
    family = family_of(config.name) or family_of(files.base)
    if isinstance(config, OnnxSettings):
        files, onnx = find_onnx(files, config.file, config.name)
    else:
        check_support(config, files, card, family)
    return ModelFacts(files, card, family, late, onnx)


def _similarity(card: ModelCard) -> str:
    """What the vectors are compared by, as in `ResolvedModel`, by a model's files that declare it."""
    last = next((name for name in reversed(card.module_names) if name != "Dropout"), "")
    if last == "Normalize" and card.similarity != "manhattan":
        return ""  # of such vectors, the other similarities give one ranking
    return "dot" if card.similarity == "dot_score" else card.similarity


def _skipped(config: EncoderSettings, model: ResolvedModel) -> dict[Role, int]:
    """For each role the special tokens and those of the instruction, which such a model does not pool."""
    if model.pooling in ("", "cls", "last_token") or not any(map(any, model.prompts.values())):
        return {}
    check_torch(config, "pools a text without its instruction")
    skipped = {}
    for role, (before, _) in model.prompts.items():
        special = model.tokenizer.load().encode(before).special_tokens_mask if before else []
        skipped[role] = len("".join(map(str, special)).rstrip("1"))
    return skipped


def _decided(
    config: EncoderSettings,
    model: ResolvedModel,
    prompts: Mapping[Role, tuple[TextPair, Origin]],
    lengths: Mapping[Role, SettingWithOrigin],
    pooling: SettingWithOrigin | None,
) -> dict[str, SettingWithOrigin]:
    """The settings by their names in reports; what is as usual is left out."""
    card, files, onnx = model.card, model.files, model.onnx
    decided = {"backend": SettingWithOrigin(config.backend, config.source_of("backend"))}
    if pooling:
        decided["pooling"] = pooling
    for role, (prompt, source) in prompts.items():
        instruction = "…".join(filter(None, prompt))
        decided[f"{SINGULAR[role]} instruction"] = SettingWithOrigin(instruction, source)
    for role, length in lengths.items():
        decided[f"tokens of a {SINGULAR[role]}"] = length
    source = config.source_of("precision") if model.precision == config.precision else "device"
    decided["precision"] = SettingWithOrigin(model.precision, source)
    if onnx:
        decided["precision"] = SettingWithOrigin(" and ".join(onnx.formats), "model")
    idle = [] if config.trust_remote_code else card.own_code
    not_normalized = config.normalize is False and card.module_names[-1:] == ["Normalize"]
    pooled = "a text without its instruction" if model.skipped else ""
    unusual: dict[str, tuple[str, Origin]] = {
        "adapter": (f"{files.adapter}, of {files.base}" if files.adapter else "", "model"),
        "file": (onnx.name if onnx else "", config.source_of("file")),
        "module Normalize": ("does not run" if not_normalized else "", "config"),
        "own code": (f"{', '.join(idle)} does not run" if idle else "", "config"),
        "end tokens": (" and ".join(filter(None, model.tokenizer.settings.end_tokens)), "model"),
        "similarity": ("" if model.similarity == "cosine" else model.similarity, "model"),
        "pooled": (pooled, "family" if card.pools_prompt else "model"),
        "task adapters": (" and ".join(TASK_ADAPTERS.values()) if card.task_adapters else "", "model"),
    }
    return decided | {name: SettingWithOrigin(*used) for name, used in unusual.items() if used[0]}


def _advice(guesses: list[str], pooling: str) -> str:
    """The settings that are only defaults, by their names in reports, and what to do, as a clause."""
    in_words = {"cls": "CLS", "last_token": "last-token"}
    defaults = [f"{in_words.get(pooling, pooling)} pooling"] if "pooling" in guesses else []
    defaults += ["no instruction"] if any("instruction" in name for name in guesses) else []
    settings = [f"model.{name.replace(' ', '_')}" for name in guesses]
    advice = f"check the model card, then set {' and '.join(settings)}"
    return f"using {' and '.join(defaults)} (guessed); {advice}"


def _prompts(config: EncoderSettings, known: ModelFacts) -> tuple[dict[Role, tuple[TextPair, Origin]], str]:
    """For each role the strings before and after a text: from the config, else the files, else the family.

    For a model that sentence-transformers saved without prompts, none is known. The second value is a clause
    that says which instructions of the config lack the model's final blank; "" if none does.
    """
    card, family, late = known.card, known.family, known.late
    declared = card.settings.get("prompts") or {}
    for key, prompt in declared.items():
        if prompt is not None and not isinstance(prompt, str):
            raise damaged(f"model '{config.name}': the prompt '{key}' is {short_repr(prompt)}", "a text")
    choices: dict[Role, tuple[TextPair, Origin]] = {}
    lacking = []
    for role, singular in SINGULAR.items():
        name = f"{singular}_instruction"
        given: str | None = getattr(config, name)
        names = [key for key in PROMPT_NAMES[role] if key in declared]
        of_model = next((declared[key] for key in names if declared[key] is not None), "")
        if late:
            of_model = late.prompts.get(role, of_model)
        of_family: str = getattr(family, name, "")
        template = family.query_format if family and role == "queries" else "{}{}"
        if given is not None:
            choices[role] = prompt_parts(template, given), "config"
        elif of_model:
            choices[role] = (of_model, ""), "model"
        elif family:
            choices[role] = prompt_parts(template, of_family), "family"
        elif names:
            choices[role] = ("", ""), "model"
        else:
            choices[role] = ("", ""), "none known" if card.modules or card.pooling else "guess"
        own = of_model or of_family
        if given and given != own and given == own.rstrip():
            lacking.append(f"model.{name} is {short_repr(given)}, and the model's own {short_repr(own)}")
    return choices, "; ".join(lacking) + (", with a blank at its end" if lacking else "")


def _max_tokens(
    config: EncoderSettings,
    known: ModelFacts,
    prompts: Mapping[Role, tuple[TextPair, Origin]],
    tokenizers: Mapping[Role, ModelTokenizer],
) -> dict[Role, SettingWithOrigin]:
    """How many tokens are kept of a text, by role: the config's number, else the model's, else 512.

    It is at most the number of the model's positions, what its family was trained for and what a ColBERT-like
    model declares. It is the same for every backend: sentence-transformers' own default is what the model
    declares, FlagEmbedding's 512, so scores of one model by the two differ for no other reason.
    """
    card, family, late = known.card, known.family, known.late
    lengths, positions = {}, max_positions(card.config)
    for role, singular in SINGULAR.items():
        configured: int | None = getattr(config, f"{singular}_max_length")
        most = late.max_lengths.get(role) if late else None
        # by the tokenizer's call, else for its role, else for all
        texts = card.texts[role] or card.texts["passages"]
        called = [(texts.get("processing_kwargs") or {}).get(part) or {} for part in TEXTS]
        in_files = [call.get("max_length") for call in called]
        in_files += [texts.get(f"{TASKS[role]}_length"), texts.get("max_seq_length")]
        declared = most or next((int(each) for each in in_files if each), None)
        limits: list[tuple[int | None, Origin]] = [
            (configured, "config"),
            (None if configured else declared, "model"),
            (None if configured or declared else DEFAULT_LENGTH, "default"),
            (None if configured or declared else card.tokenizer_length, "model"),
            (positions, "model"),
            (family.max_length if family else None, "family"),
            (most, "model"),
        ]
        numbers = (SettingWithOrigin(limit, source) for limit, source in limits if limit)
        lengths[role] = min(numbers, key=lambda each: each.value)
        length, instruction = int(lengths[role].value), "".join(prompts[role][0])
        if length <= 16 + 4 * len(instruction):  # a character has 4 bytes, so at most 4 tokens
            _check_room(config.name, role, length, instruction, tokenizers[role])
    return lengths


def _check_room(name: str, role: Role, length: int, instruction: str, tokenizer: ModelTokenizer) -> None:
    """Refuse a length that special tokens and the instruction fill: tokenizers then cut nothing at all."""
    (taken,) = token_counter(tokenizer)([instruction])
    if length <= taken:
        raise InputError(
            f"model '{name}' keeps {length} tokens of {role}, and special tokens and the instruction take "
            f"{taken}",
            allowed=f"{taken + 1} or more",
            fix=f"set model.{SINGULAR[role]}_max_length, or max_seq_length in the model's files",
        )


def _pooling(config: EncoderSettings, known: ModelFacts) -> SettingWithOrigin:
    """The pooling of the config, else the card, else the family, else the backend's library."""
    card = known.card
    causal = any(name.endswith("ForCausalLM") for name in card.architectures)
    default = "last_token" if causal else "mean" if config.as_sentence_transformers else "cls"
    choices: list[tuple[str | None, Origin]] = [
        (config.pooling, "config"),
        (card.pooling, "model"),
        (known.family.pooling if known.family else None, "family"),
        (default, "guess"),
    ]
    pooling = next(SettingWithOrigin(value, source) for value, source in choices if value)
    if known.onnx:
        return _pooling_of_file(config, card, pooling, known.onnx)
    if not config.as_sentence_transformers and pooling.value not in POOLINGS:
        raise InputError(
            f"model '{config.name}' declares pooling '{pooling.value}'",
            allowed=", ".join(POOLINGS),
            fix="set model.backend to sentence-transformers, or model.pooling to what it was trained with",
        )
    return pooling


def _pooling_of_file(
    config: EncoderSettings, card: ModelCard, pooling: SettingWithOrigin, onnx: OnnxFile
) -> SettingWithOrigin:
    """A pooling of the vectors of tokens that an ONNX file gives, or `TEXT_VECTORS` where it pools by itself.

    A file pools by itself if it gives no vectors of tokens, or if modules follow the pooling.
    """
    chain = [module for module in card.module_names if module not in WIDTH_PRESERVING]
    if not chain and pooling.value in POOLINGS and {*TOKEN_VECTORS} & {*onnx.outputs}:
        return pooling
    if config.pooling or TEXT_VECTORS not in onnx.outputs:
        what = f"modules {', '.join(chain)} behind" if chain else f"pooling '{pooling.value}' of"
        raise InputError(
            f"model '{config.name}' has {what} the vectors of tokens, and {onnx.name} gives "
            f"{', '.join(onnx.outputs)}",
            allowed=f"{', '.join(TOKEN_VECTORS)}, pooled by {', '.join(POOLINGS)}; or {TEXT_VECTORS}",
            fix="export the model with that output, and leave out model.pooling if it is the last",
        )
    return SettingWithOrigin(TEXT_VECTORS, "model")
