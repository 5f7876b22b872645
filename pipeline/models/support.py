"""What backends support: a model that would run in part, or otherwise than it was trained, is refused."""

from __future__ import annotations

from pipeline.config import EncoderSettings
from pipeline.core.errors import InputError, short_repr
from pipeline.models.card import WIDTH_PRESERVING, Family, ModelCard
from pipeline.models.files import Files, untrusted_code

VECTORS = ["Transformer", "Pooling", "Normalize"]
"""The modules of a model of dense vectors that every backend runs: these, or the first of them."""
WITH_DECODER = ("t5", "mt5", "umt5", "longt5")
"""Model types whose encoder transformers runs alone only in a class of its own."""
OF_TASKS = ("JinaEmbeddingsV3Model", "JinaEmbeddingsV4Model")
"""Networks with adapters for tasks, in transformers' or their own code."""
PYLATE = ("pylate.models.Dense.",)
"""Modules of PyLate for which MultiVectorEncoder has its own."""
SPARSE = ("SpladePooling", "SparseStaticEmbedding", "SparseAutoEncoder", "CSRSparsity")
SPARSE_FIRST = ("Transformer", "MLMTransformer", "Router", "SparseStaticEmbedding")
"""Modules that give word weights, and those that a model with them may begin with."""


def check_support(config: EncoderSettings, files: Files, card: ModelCard, family: Family | None) -> None:
    """Refuse a model that would run in part, or otherwise than it was trained, or has no vectors."""
    if not files.has_weights:
        raise InputError(
            f"model folder {files.small_files}: no weights (*.safetensors or *.bin), but an ONNX file",
            fix="set model.backend to onnx",
        )
    known = ("sentence_transformers.", *(PYLATE if config.output == "multivector" else ()))
    custom = [module.name for module in card.modules if not module.name.startswith(known)]
    if custom and not config.trust_remote_code:
        raise untrusted_code(config.name, f", such as {custom[0]}")
    ordered = [name for name in card.module_names if name != "Dropout"]
    plain = ordered == VECTORS[: len(ordered)] and not card.network_folder
    if config.output == "sparse":
        if config.as_sentence_transformers or (config.runs_splade and not card.has_m3_heads):
            _check_sparse_modules(config, card)
    elif sparse := [name for name in ordered if name in SPARSE]:
        raise InputError(
            f"model '{config.name}' has a module {sparse[0]}: it gives word weights and no vectors",
            fix="set model.output to sparse and model.backend to sentence-transformers",
        )
    elif config.as_sentence_transformers:
        _check_chain(config, card)
    elif not plain or card.config.get("model_type") in WITH_DECODER:
        raise _runs_in_part(config, card)
    if config.as_sentence_transformers and not card.modules and card.has_chat_template:
        raise _in_a_conversation(config)
    bidirectional = family is not None and family.bidirectional and card.config.get("is_causal") is not False
    if bidirectional and not config.trust_remote_code:
        raise _runs_as_causal(config)
    declared = card.modules or card.pooling or family or config.pooling
    if card.is_masked_language_model and config.output == "dense" and not declared:
        raise _has_no_vectors(config)
    adapters_run = config.backend == "flag" and config.trust_remote_code and bool(card.task_adapters)
    if {*OF_TASKS} & {*card.architectures} or (card.task_adapters and not adapters_run):
        raise _without_adapters(config)


def _runs_in_part(config: EncoderSettings, card: ModelCard) -> InputError:
    """The refusal of a model that is more than a network and its pooling: most backends run nothing else."""
    names, kind, backend = card.module_names, card.config.get("model_type"), f"backend '{config.backend}'"
    if unknown := [name for name in names if name not in WIDTH_PRESERVING]:
        problem = f"has a module {unknown[0]}, which {backend} does not run"
    elif card.network_folder:
        problem = f"has its network in its folder {card.network_folder}, where {backend} does not look"
    elif kind in WITH_DECODER:
        problem = f"is of the type {kind}, and {backend} does not run its encoder alone"
    else:
        problem = f"has the modules {', '.join(names)}, in an order that {backend} does not run"
    return InputError(f"model '{config.name}' {problem}", fix="set model.backend to sentence-transformers")


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


def _in_a_conversation(config: EncoderSettings) -> InputError:
    return InputError(
        f"sentence-transformers puts texts into the chat template of model '{config.name}', and no backend "
        "does so here",
        fix="set model.backend to flag, which takes texts as they are",
    )


def _runs_as_causal(config: EncoderSettings) -> InputError:
    return InputError(
        f"model '{config.name}' needs bidirectional attention, and transformers would run it as causal",
        allowed='its own Python files, or "is_causal": false in its config.json',
        fix="read those files, then set model.trust_remote_code to true",
    )


def _has_no_vectors(config: EncoderSettings) -> InputError:
    return InputError(
        f"model '{config.name}' is a masked language model, and its files do not say how to make vectors",
        allowed="a model with vectors, or output: sparse for one that gives weights of words, as SPLADE",
        fix="set model.output to sparse; or set model.pooling, to take vectors of its hidden states",
    )


def _without_adapters(config: EncoderSettings) -> InputError:
    """The refusal of a model that would give the vectors of its base."""
    return InputError(
        f"model '{config.name}' has adapters for tasks, and would run without them",
        allowed="backend flag with model.trust_remote_code: true, where its config.json has "
        "lora_adaptations, as that of jina-embeddings-v3",
        fix="set both, or serve the model and set model.backend to http",
    )


def check_torch(config: EncoderSettings, what: str) -> None:
    """Refuse a model that only backends of PyTorch run as it is; `what` is its trait, as a clause."""
    if not config.runs_torch:
        raise InputError(
            f"model '{config.name}' {what}, which backend '{config.backend}' does not support",
            allowed="backends flag and sentence-transformers",
            fix="set model.backend to one of these",
        )
