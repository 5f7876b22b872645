"""What backends support: a model that would run in part, or otherwise than it was trained, is refused."""

from __future__ import annotations

from pipeline.config import EncoderSettings
from pipeline.core.errors import InputError, short_repr
from pipeline.models.card import WIDTH_PRESERVING, Family, ModelCard
from pipeline.models.files import untrusted_code

VECTORS = ["Transformer", "Pooling", "Normalize"]
"""The modules of a model of dense vectors that every backend runs, in this order; the last may be missing."""
PYLATE = ("pylate.models.Dense.",)
"""Modules of PyLate for which MultiVectorEncoder has its own."""
SPARSE = ("SpladePooling", "SparseStaticEmbedding", "SparseAutoEncoder", "CSRSparsity")
SPARSE_FIRST = ("Transformer", "MLMTransformer", "Router", "SparseStaticEmbedding")
"""Modules that give word weights, and those that a model with them may begin with."""


def check_modules(config: EncoderSettings, card: ModelCard) -> None:
    """Refuse a model if the backend would leave out some of its modules, or run its decoder, too."""
    known = ("sentence_transformers.", *(PYLATE if config.output == "multivector" else ()))
    custom = [module.name for module in card.modules if not module.name.startswith(known)]
    if custom and not config.trust_remote_code:
        raise untrusted_code(config.name, f", such as {custom[0]}")
    if config.output == "sparse":
        if config.as_sentence_transformers or (config.runs_splade and not card.has_m3_heads):
            _check_sparse_modules(config, card)
        return
    names, backend = card.module_names, f"backend '{config.backend}'"
    if sparse := [name for name in names if name in SPARSE]:
        raise InputError(
            f"model '{config.name}' has a module {sparse[0]}: it gives word weights and no vectors",
            fix="set model.output to sparse and model.backend to sentence-transformers",
        )
    if config.as_sentence_transformers:
        _check_chain(config, card)
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
            card.network_folder,
            f"has its network in its folder {card.network_folder}, where {backend} does not look",
        ),
        (
            kind in ("t5", "mt5", "umt5", "longt5"),
            f"is of the type {kind}, and {backend} does not run its encoder alone",
        ),
    ):
        if fails:
            raise InputError(
                f"model '{config.name}' {problem}", fix="set model.backend to sentence-transformers"
            )


def _check_chain(config: EncoderSettings, card: ModelCard) -> None:
    """Refuse a model whose modules sentence-transformers would run otherwise than one after the other."""
    names = card.module_names
    dense = (module.config.get("activation_function") for module in card.modules if module.kind == "Dense")
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


def check_use(config: EncoderSettings, card: ModelCard, family: Family | None) -> None:
    """Refuse a model that would run otherwise than it was trained, or whose files name no vectors."""
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
        (  # it would give the vectors of its base
            of_code or (card.task_adapters and not adapters_run),
            f"{name} has adapters for tasks, and would run without them",
            "backend flag with model.trust_remote_code: true, where its config.json has lora_adaptations, as "
            "that of jina-embeddings-v3",
            "set both, or serve the model and set model.backend to http",
        ),
    ):
        if fails:
            raise InputError(found, allowed=allowed, fix=fix)


def check_torch(config: EncoderSettings, what: str) -> None:
    """Refuse a model that only backends of PyTorch run as it is; `what` is its trait, as a clause."""
    if not config.runs_torch:
        raise InputError(
            f"model '{config.name}' {what}, which backend '{config.backend}' does not support",
            allowed="backends flag and sentence-transformers",
            fix="set model.backend to one of these",
        )
