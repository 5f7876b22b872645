"""Which modules of sentence-transformers make a model one that gives word weights."""

from __future__ import annotations

from pipeline.config import EncoderSettings
from pipeline.core.errors import InputError
from pipeline.models.card import ModelCard

SPARSE = ("SpladePooling", "SparseStaticEmbedding", "SparseAutoEncoder", "CSRSparsity")
FIRST = ("Transformer", "MLMTransformer", "Router", "SparseStaticEmbedding")


def check_sparse_modules(config: EncoderSettings, card: ModelCard) -> None:
    """Refuse a model if sentence-transformers would give it a last module with random weights.

    That is what `SparseEncoder` does for a model that is no masked language model and has no sparse modules.
    """
    names = card.module_names
    masked = any(name.endswith("ForMaskedLM") for name in card.config.get("architectures") or [])
    if names:
        known = names[0] in FIRST and (names[0] == "Router" or any(name in SPARSE for name in names))
    else:
        known = masked
    if not known:
        what = f"its modules are {', '.join(names)}" if names else "it is not a masked language model"
        raise InputError(
            f"model '{config.name}' gives no word weights: {what}",
            allowed="a model of sentence-transformers' SparseEncoder, or a masked language model",
            fix="set model.output to dense, or choose another model",
        )


def refuse_sparse_modules(config: EncoderSettings, card: ModelCard) -> None:
    """Refuse a model that gives word weights, where vectors are made."""
    found = [name for name in card.module_names if name in SPARSE]
    if found:
        raise InputError(
            f"model '{config.name}' has a module {found[0]}: it gives word weights and no vectors",
            fix="set model.output to sparse and model.backend to sentence-transformers",
        )
