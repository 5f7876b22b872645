"""BGE-M3 as FlagEmbedding loads it: a network, and heads for word weights and for token vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.models.model import Model

HEADS = ("colbert_linear.pt", "sparse_linear.pt")
"""Files of the heads; if one is missing, FlagEmbedding takes random weights for both."""


def load_m3(model: Model) -> Any:
    """FlagEmbedding's inference module of BGE-M3, in the model's precision on its device.

    Its `model` is the network; `colbert_linear` and `sparse_linear` are the heads.
    """
    folder = model.files.folder()
    missing = [name for name in HEADS if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"model '{model.name}' has no {missing[0]}",
            allowed="BGE-M3, or a model that was fine-tuned from it by FlagEmbedding",
            fix="choose such a model, backend sentence-transformers, or model.output: dense",
        )
    with explain_loading_errors(model, "FlagEmbedding"):
        flag = _load(model, folder)
    refuse_missing_weights(model, folder, flag.model.model)
    return flag


def _load(model: Model, folder: Path) -> Any:
    import torch
    from FlagEmbedding import FlagAutoModel

    head = torch.load(folder / HEADS[0], map_location="cpu", weights_only=True)
    return FlagAutoModel.from_finetuned(
        str(folder),
        model_class="encoder-only-m3",
        normalize_embeddings=model.normalize,
        use_fp16=model.precision == "fp16",
        use_bf16=model.precision == "bf16",
        devices=[model.device],
        pooling_method="cls",
        trust_remote_code=model.trust_remote_code,
        query_instruction_format="{}{}",
        colbert_dim=len(head["weight"]),
    )
