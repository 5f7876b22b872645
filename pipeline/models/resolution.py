"""Resolution of a config's model: its files, and the settings that the config leaves to them.

For pooling, prompts and lengths, the config counts first, then the model's files, then its family, then the
default of the library that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pipeline.config import EncoderSettings
from pipeline.config.model import OnnxSettings
from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import ROLES, Role, TextPair
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
from pipeline.models.late_interaction import LateInteraction, late_interaction
from pipeline.models.model import Origin, ResolvedModel, SettingWithOrigin
from pipeline.models.onnx_file import POOLINGS, TEXT_VECTORS, TOKEN_VECTORS, OnnxFile, find_onnx
from pipeline.models.support import check_modules, check_torch, check_use
from pipeline.models.text_settings import TASKS, TEXTS
from pipeline.models.tokenizer import TokenizerSettings, prepare_tokenizer, token_counter

PROMPT_NAMES: dict[Role, tuple[str, ...]] = {
    "queries": ("query", "retrieval.query", "Retrieval-query", "s2p_query"),
    "passages": ("document", "passage", "corpus", "retrieval.passage", "Retrieval-document"),
}
"""Names that models give to the prompt of a role, in the order in which they are tried: those that
sentence-transformers looks for, then those in the files of jina-v3, EmbeddingGemma and stella."""
SINGULAR: dict[Role, str] = {"queries": "query", "passages": "passage"}
DEFAULT_LENGTH = 512
"""Tokens kept of a text where neither config nor model says how many: FlagEmbedding's default."""


def resolve_model(
    config: EncoderSettings, files: Files, device: str, precision: str, cache: Path | None
) -> ResolvedModel:
    """Decide every setting of a model that the config leaves open.

    Args:
        config: A section `model`.
        files: The model's.
        device: What computes it, `cpu` or `cuda:N`.
        precision: The number format that it computes in.
        cache: Where the tokenizer is kept if the user's store cannot be written.
    """
    # of BGE-M3, FlagEmbedding adds no markers, scales vectors, and takes a mean over tokens
    is_m3 = config.output == "multivector" and not config.as_sentence_transformers
    card = read_card(files, "dense" if is_m3 else config.output, config.name)
    if files.adapter:
        check_torch(config, "is a PEFT adapter")
    late = late_interaction(card, config.name) if config.output == "multivector" and not is_m3 else None
    family, onnx = family_of(config.name) or family_of(files.base), None
    if isinstance(config, OnnxSettings):
        files, onnx = find_onnx(files, config.file, config.name)
    elif not files.has_weights:
        raise InputError(
            f"model folder {files.small_files}: no weights (*.safetensors or *.bin), but an ONNX file",
            fix="set model.backend to onnx",
        )
    else:
        check_modules(config, card)
        check_use(config, card, family)
    choices, hint = _prompts(config, card, family, late)
    prompts = {role: prompt for role, (prompt, _) in choices.items()}
    lengths = _max_tokens(config, card, family, late)
    pooling = _pooling(config, card, family, onnx) if config.output == "dense" else None
    end_tokens = card.end_tokens if pooling and pooling.value == "last_token" else ("", "")
    made_by = TokenizerSettings(config.name, config.trust_remote_code, end_tokens)
    routes = dict.fromkeys(card.routes.values())
    by_route = {route: prepare_tokenizer(files, route, made_by, cache) for route in routes}
    tokenizers = {role: by_route[route] for role, route in card.routes.items()}
    model = ResolvedModel(
        name=config.name,
        files=files,
        identity=files.identity(config.output),
        precision=precision,
        device=device,
        prompts=prompts,
        max_lengths={role: int(lengths[role].value) for role in ROLES},
        pad_id=card.pad_id,
        tokenizer=tokenizers["passages"],
        tokenizers=tokenizers,
        trust_remote_code=config.trust_remote_code,
        card=card,
        output=config.output,
        pooling=str(pooling.value) if pooling else "",
        truncate_dim=(config.truncate_dim or card.settings.get("truncate_dim") or None) if pooling else None,
        normalize=is_m3,
        onnx=onnx,
        similarity=_similarity(card) if pooling and card.similarity else "",
        hint=hint,
        mean_over_tokens=late.mean if late else is_m3,
    )
    if not card.pools_prompt or (family and not family.pools_prompt):
        model = replace(model, skipped=_skipped(config, model))
    for role in ROLES:
        most_taken = 16 + 4 * len("".join(prompts[role]))  # a character has 4 bytes, so at most 4 tokens
        if model.max_lengths[role] <= most_taken:
            _check_room(model, role)
    return replace(model, decided=_decided(config, model, choices, lengths, pooling))


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


def _check_room(model: ResolvedModel, role: Role) -> None:
    """Refuse a length that special tokens and the instruction fill: tokenizers then cut nothing at all."""
    length = model.max_lengths[role]
    (taken,) = token_counter(model.tokenizers[role])(["".join(model.prompts[role])])
    if length <= taken:
        raise InputError(
            f"model '{model.name}' keeps {length} tokens of {role}, and special tokens and the "
            f"instruction take {taken}",
            allowed=f"{taken + 1} or more",
            fix=f"set model.{SINGULAR[role]}_max_length, or max_seq_length in the model's files",
        )


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
    by_config = model.precision == config.precision
    source = config.source_of("precision") if by_config else "device"
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


def _prompts(
    config: EncoderSettings, card: ModelCard, family: Family | None, late: LateInteraction | None
) -> tuple[dict[Role, tuple[TextPair, Origin]], str]:
    """For each role the strings before and after a text: from the config, else the files, else the family.

    For a model that sentence-transformers saved without prompts, none is known. The second value is a clause
    that says which instructions of the config lack the model's final blank; "" if none does.
    """
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
            of_model = late.prompts[role]
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
    config: EncoderSettings, card: ModelCard, family: Family | None, late: LateInteraction | None
) -> dict[Role, SettingWithOrigin]:
    """How many tokens are kept of a text, by role: the config's number, else the model's, else 512.

    It is at most the number of the model's positions, what its family was trained for and what a ColBERT-like
    model declares, `late`. It is the same for every backend: sentence-transformers' own default is what the
    model declares, FlagEmbedding's 512, so scores of one model by the two differ for no other reason.
    """
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
        known = (SettingWithOrigin(limit, source) for limit, source in limits if limit)
        lengths[role] = min(known, key=lambda each: each.value)
    return lengths


def _pooling(
    config: EncoderSettings, card: ModelCard, family: Family | None, onnx: OnnxFile | None
) -> SettingWithOrigin:
    """The pooling of the config, else the card, else the family, else the backend's library."""
    causal = any(name.endswith("ForCausalLM") for name in card.architectures)
    default = "last_token" if causal else "mean" if config.as_sentence_transformers else "cls"
    choices: list[tuple[str | None, Origin]] = [
        (config.pooling, "config"),
        (card.pooling, "model"),
        (family.pooling if family else None, "family"),
        (default, "guess"),
    ]
    pooling = next(SettingWithOrigin(value, source) for value, source in choices if value)
    if onnx:
        return _pooling_of_file(config, card, pooling, onnx)
    if not config.as_sentence_transformers and pooling.value not in ("cls", "mean", "last_token"):
        raise InputError(
            f"model '{config.name}' declares pooling '{pooling.value}'",
            allowed="cls, mean, last_token",
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
