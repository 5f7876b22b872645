"""Resolution of a config's model: its files, and the settings that the config leaves to them.

For pooling, prompts and lengths, the config counts first, then the model's card, then its family, then the
default of the library that runs it. A model that the backend would run in another way than it was trained
is refused.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.config import EncoderSettings
from pipeline.config.model import OnnxSettings
from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import ROLES, Role, TextPair
from pipeline.models.card import (
    PROMPT_NAMES,
    TASK_ADAPTERS,
    WIDTH_PRESERVING,
    Family,
    ModelCard,
    family_of,
    late_interaction,
    max_positions,
    prompt_parts,
    read_card,
)
from pipeline.models.files import STATIC, Files, untrusted_code
from pipeline.models.model import Origin, ResolvedModel, SettingWithOrigin
from pipeline.models.onnx_file import POOLINGS, TEXT_VECTORS, TOKEN_VECTORS, OnnxFile, find_onnx
from pipeline.models.text_settings import TASKS, TEXTS
from pipeline.models.tokenizer import ModelTokenizer, TokenizerSettings, prepare_tokenizer, token_counter

VECTORS = ["Transformer", "Pooling", "Normalize"]
"""The modules of a model of dense vectors that every backend runs, in this order; the last may be missing."""
PYLATE = ("pylate.models.Dense.",)
"""Modules of PyLate for which MultiVectorEncoder has its own."""
SPARSE = ("SpladePooling", "SparseStaticEmbedding", "SparseAutoEncoder", "CSRSparsity")
SPARSE_FIRST = ("Transformer", "MLMTransformer", "Router", "SparseStaticEmbedding")
"""Modules that give word weights, and those that a model with them may begin with."""
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
    reads = (
        "dense" if config.output == "multivector" and not config.as_sentence_transformers else config.output
    )
    card = read_card(files, reads, config.name)
    if files.adapter:
        _refuse_if_not_torch(config, "is a PEFT adapter")
    late = None  # of BGE-M3 too: FlagEmbedding adds no markers, scales vectors, and takes a mean over tokens
    if config.output == "multivector" and config.as_sentence_transformers:
        late = late_interaction(card, config.name)
        card = replace(card, prompts={role: prompt for role, prompt in late.prompts.items() if prompt})
    family = family_of(config.name) or family_of(files.base)
    files, onnx = (
        find_onnx(files, config.file, config.name) if isinstance(config, OnnxSettings) else (files, None)
    )
    if onnx is None and not files.has_weights:
        raise InputError(
            f"model folder {files.small_files}: no weights (*.safetensors or *.bin), but an ONNX file",
            fix="set model.backend to onnx",
        )
    splade = config.runs_splade and config.output == "sparse" and not card.has_m3_heads
    chain = config.as_sentence_transformers or splade
    if onnx is None:
        _check_modules(config, card, chain)
        _check_use(config, card, family)
    choices, hint = _prompts(config, card, family)
    prompts = {role: prompt for role, (prompt, _) in choices.items()}
    lengths = {
        role: _max_tokens(config, role, card, family, late.max_lengths.get(role) if late else None)
        for role in ROLES
    }
    pooling = _pooling(config, card, family, onnx) if config.output == "dense" else None
    pools_last = pooling is not None and pooling.value == "last_token"
    end_tokens = card.end_tokens if pools_last else ("", "")
    by_route = {}
    for kind, folder in dict.fromkeys(card.routes.values()):
        by_library, plain = kind != "StaticEmbedding", kind in STATIC
        made_by = TokenizerSettings(config.name, config.trust_remote_code, end_tokens, by_library, plain)
        by_route[kind, folder] = prepare_tokenizer(files, folder, made_by, cache)
    tokenizers = {role: by_route[route] for role, route in card.routes.items()}
    tokenizer = tokenizers["passages"]
    skipped = {}
    pools_all = card.pools_prompt and (family is None or family.pools_prompt)
    pools_several = pooling is not None and pooling.value not in ("cls", "last_token")
    if pools_several and not pools_all and any(map(any, prompts.values())):
        _refuse_if_not_torch(config, "pools a text without its instruction")
        skipped = {role: _tokens_before_text(tokenizer, prompts[role][0]) for role in ROLES}
    similarity = card.similarity if pooling else ""
    last = next((name for name in reversed(card.module_names) if name != "Dropout"), "")
    if last == "Normalize" and similarity != "manhattan":
        similarity = ""  # of such vectors, the other similarities give one ranking
    similarity = "dot" if similarity == "dot_score" else similarity
    decided = {
        "backend": SettingWithOrigin(config.backend, config.source_of("backend")),
        **({"pooling": pooling} if pooling else {}),
        **{
            f"{SINGULAR[role]} instruction": SettingWithOrigin("…".join(filter(None, prompt)), source)
            for role, (prompt, source) in choices.items()
        },
        "tokens of a query": lengths["queries"],
        "tokens of a passage": lengths["passages"],
        "precision": SettingWithOrigin(
            precision, config.source_of("precision") if precision == config.precision else "device"
        ),
    }
    if onnx:
        decided["precision"] = SettingWithOrigin(" and ".join(onnx.formats), "model")
    idle = [] if config.trust_remote_code else card.own_code
    others: dict[str, tuple[str, Origin]] = {
        "adapter": (f"{files.adapter}, of {files.base}" if files.adapter else "", "model"),
        "file": (onnx.name if onnx else "", config.source_of("file")),
        "module Normalize": (
            "does not run" if config.normalize is False and card.module_names[-1:] == ["Normalize"] else "",
            "config",
        ),
        "own code": (f"{', '.join(idle)} does not run" if idle else "", "config"),
        "end tokens": (" and ".join(filter(None, end_tokens)), "model"),
        "similarity": ("" if similarity == "cosine" else similarity, "model"),
        "pooled": (
            "a text without its instruction" if skipped else "",
            "family" if card.pools_prompt else "model",
        ),
        "task adapters": (" and ".join(TASK_ADAPTERS.values()) if card.task_adapters else "", "model"),
    }
    decided |= {name: SettingWithOrigin(*used) for name, used in others.items() if used[0]}
    model = ResolvedModel(
        name=config.name,
        files=files,
        identity=files.identity(config.output),
        precision=precision,
        device=device,
        prompts=prompts,
        max_lengths={role: int(lengths[role].value) for role in ROLES},
        pad_id=card.pad_id,
        tokenizer=tokenizer,
        tokenizers=tokenizers,
        trust_remote_code=config.trust_remote_code,
        card=card,
        decided=decided,
        output=config.output,
        pooling=str(pooling.value) if pooling else "",
        truncate_dim=(config.truncate_dim or card.truncate_dim) if pooling else None,
        normalize=config.output == "multivector" and late is None,
        onnx=onnx,
        similarity=similarity,
        skipped=skipped,
        hint=hint,
        mean_over_tokens=late.mean if late else config.output == "multivector",
    )
    _refuse_no_room(model)
    return model


def _refuse_no_room(model: ResolvedModel) -> None:
    """Refuse lengths that special tokens and the instruction fill: tokenizers then cut nothing at all."""
    for role in ROLES:
        length, prompt = model.max_lengths[role], "".join(model.prompts[role])
        if length > 16 + 4 * len(prompt):  # a character has 4 bytes, so at most 4 tokens
            continue
        (taken,) = token_counter(model.tokenizers[role])([prompt])
        if length <= taken:
            raise InputError(
                f"model '{model.name}' keeps {length} tokens of {role}, and special tokens and the "
                f"instruction take {taken}",
                allowed=f"{taken + 1} or more",
                fix=f"set model.{SINGULAR[role]}_max_length, or max_seq_length in the model's files",
            )


def _refuse_if_not_torch(config: EncoderSettings, what: str) -> None:
    if not config.runs_torch:
        raise InputError(
            f"model '{config.name}' {what}, which backend '{config.backend}' does not support",
            allowed="backends flag and sentence-transformers",
            fix="set model.backend to one of these",
        )


def _tokens_before_text(tokenizer: ModelTokenizer, prompt: str) -> int:
    """The tokens at the beginning of a text that are special ones or the prompt's; 0 without a prompt."""
    special = tokenizer.load().encode(prompt).special_tokens_mask if prompt else []
    return len("".join(map(str, special)).rstrip("1"))


def _check_modules(config: EncoderSettings, card: ModelCard, chain: bool) -> None:
    """Refuse a model if the backend would leave out some of its modules, or run its decoder, too.

    `chain` tells whether the backend runs the model as sentence-transformers does, here and below.
    """
    known = ("sentence_transformers.", *(PYLATE if config.output == "multivector" else ()))
    custom = [module.name for module in card.modules if not module.name.startswith(known)]
    if custom and not config.trust_remote_code:
        raise untrusted_code(config.name, f", such as {custom[0]}")
    names, backend = card.module_names, f"backend '{config.backend}'"
    if config.output == "sparse":
        if chain:
            _check_sparse_modules(config, card)
        return
    if sparse := [name for name in names if name in SPARSE]:
        raise InputError(
            f"model '{config.name}' has a module {sparse[0]}: it gives word weights and no vectors",
            fix="set model.output to sparse and model.backend to sentence-transformers",
        )
    if chain:
        dense = (
            module.config.get("activation_function") for module in card.modules if module.kind == "Dense"
        )
        other = [name for name in dense if name and not name.startswith("torch.")]
        for fails, problem, allowed in (
            (
                "Router" in names[1:],
                f"has a Router behind its first module: {', '.join(names)}",
                "one chain of modules for all texts",
            ),
            (
                {*names[:1]} - {"Transformer", "StaticEmbedding"},
                f"begins with the module {', '.join(names[:1])}",
                "Transformer, StaticEmbedding",
            ),
            (  # instead of which sentence-transformers silently takes Tanh
                other,
                f"has a Dense module with the activation {', '.join(map(short_repr, other))}",
                "an activation of torch, such as torch.nn.modules.activation.Tanh",
            ),
        ):
            if fails:
                fix = "encode with sentence-transformers yourself, and set model.backend to precomputed"
                raise InputError(f"model '{config.name}' {problem}", allowed=allowed, fix=fix)
        return
    unknown = [name for name in names if name not in WIDTH_PRESERVING]
    ordered = [name for name in names if name != "Dropout"]
    kind = card.config.get("model_type")
    for fails, problem in (
        (unknown, f"has a module {', '.join(unknown[:1])}, which {backend} does not run"),
        (
            ordered not in ([], ["Transformer"], ["Transformer", "Pooling"], VECTORS),
            f"has the modules {', '.join(names)}, in an order that {backend} does not run",
        ),
        (
            bool(card.network_folder),
            f"has its network in its folder {card.network_folder}, where {backend} does not look",
        ),
        (
            kind in ("t5", "mt5", "umt5", "longt5"),
            f"is of the type {kind}, and {backend} does not run its encoder alone",
        ),
    ):
        if fails:
            fix = "set model.backend to sentence-transformers"
            raise InputError(f"model '{config.name}' {problem}", fix=fix)


def _check_sparse_modules(config: EncoderSettings, card: ModelCard) -> None:
    """Refuse a model if sentence-transformers would give it a last module with random weights.

    That is what `SparseEncoder` does for a model that is no masked language model and has no sparse modules.
    """
    names = card.module_names
    if names:
        known = names[0] in SPARSE_FIRST and (names[0] == "Router" or any(name in SPARSE for name in names))
    else:
        known = card.is_masked_language_model
    if not known:
        what = f"its modules are {', '.join(names)}" if names else "it is not a masked language model"
        raise InputError(
            f"model '{config.name}' gives no word weights: {what}",
            allowed="a model of sentence-transformers' SparseEncoder, or a masked language model",
            fix="set model.output to dense, or choose another model",
        )


def _check_use(config: EncoderSettings, card: ModelCard, family: Family | None) -> None:
    """Refuse a model that would run otherwise than it was trained, or whose files name no vectors.

    A model with task adapters would give the vectors of its base.
    """
    name = f"model '{config.name}'"
    adapters_run = config.backend == "flag" and config.trust_remote_code and bool(card.task_adapters)
    of_code = {"JinaEmbeddingsV3Model", "JinaEmbeddingsV4Model"} & {*card.architectures}
    bidirectional = family is not None and family.bidirectional and card.config.get("is_causal") is not False
    declared = card.modules or card.pooling or family or config.pooling
    for fails, found, allowed, fix in (
        (
            config.as_sentence_transformers and not card.modules and card.has_chat_template,
            f"sentence-transformers puts texts into the chat template of {name}, and no backend does so here",
            "",
            "set model.backend to flag, which takes texts as they are",
        ),
        (
            bidirectional and not config.trust_remote_code,
            f"{name} needs bidirectional attention, and transformers would run it as causal",
            'its own Python files, or "is_causal": false in its config.json',
            "read those files, then set model.trust_remote_code to true",
        ),
        (
            card.is_masked_language_model and config.output == "dense" and not declared,
            f"{name} is a masked language model, and its files do not say how to make vectors",
            "a model with vectors, or output: sparse for one that gives weights of words, as SPLADE",
            "set model.output to sparse; or set model.pooling, to take vectors of its hidden states",
        ),
        (
            of_code or (card.task_adapters and not adapters_run),
            f"{name} has adapters for tasks, and would run without them",
            "backend flag with model.trust_remote_code: true, where its config.json has lora_adaptations, as "
            "that of jina-embeddings-v3",
            "set both, or serve the model and set model.backend to http",
        ),
    ):
        if fails:
            raise InputError(found, allowed=allowed, fix=fix)


def _prompts(
    config: EncoderSettings, card: ModelCard, family: Family | None
) -> tuple[dict[Role, tuple[TextPair, Origin]], str]:
    """For each role the strings before and after a text: from the config, else the card, else the family.

    For a model that sentence-transformers saved without prompts, none is known. The second value is a clause
    that says which instructions of the config lack the model's final blank; "" if none does.
    """
    choices: dict[Role, tuple[TextPair, Origin]] = {}
    lacking = []
    for role, singular in SINGULAR.items():
        name = f"{singular}_instruction"
        given: str | None = getattr(config, name)
        of_family: str = getattr(family, name, "")
        template = family.query_format if family and role == "queries" else "{}{}"
        declared = not {*PROMPT_NAMES[role]}.isdisjoint(card.settings.get("prompts") or {})
        if given is not None:
            choices[role] = prompt_parts(template, given), "config"
        elif role in card.prompts:
            choices[role] = (card.prompts[role], ""), "model"
        elif family:
            choices[role] = prompt_parts(template, of_family), "family"
        elif declared:
            choices[role] = ("", ""), "model"
        else:
            choices[role] = ("", ""), "none known" if card.modules or card.pooling else "guess"
        own = card.prompts.get(role) or of_family
        if given and own and given != own and given == own.rstrip():
            lacking.append(f"model.{name} is {short_repr(given)}, and the model's own {short_repr(own)}")
    return choices, "; ".join(lacking) + (", with a blank at its end" if lacking else "")


def _max_tokens(
    config: EncoderSettings, role: Role, card: ModelCard, family: Family | None, late: int | None
) -> SettingWithOrigin:
    """How many tokens are kept of a text: the config's number, else what the model declares, else 512.

    It is at most the number of the model's positions, what its family was trained for and what a ColBERT-like
    model declares, `late`. It is the same for every backend: sentence-transformers' own default is what the
    model declares, FlagEmbedding's 512, so scores of one model by the two differ for no other reason.
    """
    configured: int | None = getattr(config, f"{SINGULAR[role]}_max_length")
    # by the tokenizer's call, else for its role, else for all
    texts = card.texts[role] or card.texts["passages"]
    called = [(texts.get("processing_kwargs") or {}).get(part) or {} for part in TEXTS]
    in_files = [*(call.get("max_length") for call in called), texts.get(f"{TASKS[role]}_length")]
    declared = late or next((int(each) for each in (*in_files, texts.get("max_seq_length")) if each), None)
    limits: list[tuple[int | None, Origin]] = [
        (configured, "config"),
        (None if configured else declared, "model"),
        (None if configured or declared else DEFAULT_LENGTH, "default"),
        (None if configured or declared else card.tokenizer_length, "model"),
        (max_positions(card.config), "model"),
        (family.max_length if family else None, "family"),
        (late, "model"),
    ]
    return min(
        (SettingWithOrigin(limit, source) for limit, source in limits if limit), key=lambda each: each.value
    )


def _pooling(
    config: EncoderSettings, card: ModelCard, family: Family | None, onnx: OnnxFile | None
) -> SettingWithOrigin:
    """The pooling of the config, else the card, else the family, else the backend's library.

    It is `TEXT_VECTORS` where an ONNX file pools by itself: it gives no vectors of tokens, or modules follow.
    """
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
        chain = [module for module in card.module_names if module not in WIDTH_PRESERVING]
        here = not chain and pooling.value in POOLINGS and bool({*TOKEN_VECTORS} & {*onnx.outputs})
        if not here and (config.pooling or TEXT_VECTORS not in onnx.outputs):
            what = f"modules {', '.join(chain)} behind" if chain else f"pooling '{pooling.value}' of"
            raise InputError(
                f"model '{config.name}' has {what} the vectors of tokens, and {onnx.name} gives "
                f"{', '.join(onnx.outputs)}",
                allowed=f"{', '.join(TOKEN_VECTORS)}, pooled by {', '.join(POOLINGS)}; or {TEXT_VECTORS}",
                fix="export the model with that output, and leave out model.pooling if it is the last",
            )
        return pooling if here else SettingWithOrigin(TEXT_VECTORS, "model")
    if not config.as_sentence_transformers and pooling.value not in ("cls", "mean", "last_token"):
        raise InputError(
            f"model '{config.name}' declares pooling '{pooling.value}'",
            allowed="cls, mean, last_token",
            fix="set model.backend to sentence-transformers, or model.pooling to what it was trained with",
        )
    return pooling
