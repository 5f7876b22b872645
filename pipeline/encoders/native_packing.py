"""Packing of a model for the native backend, in a process of its own, which imports torch.

python -m pipeline.encoders.native_packing < TASK
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core import machine
from pipeline.encoders.agreement import PROBES
from pipeline.encoders.conversion import library_rows, read_task
from pipeline.encoders.torch.loading import load_network, read_head, unused_tokens
from pipeline.models.card import ModelCard, max_positions
from pipeline.models.model import ResolvedModel
from pipeline.models.outputs import LOGARITHMS, splade_obstacle
from pipeline.native import vectors


def pack_model(model: ResolvedModel, target: Path) -> None:
    """Write a model to the `.npz` `target`.

    Rows of a few texts by the model's library go beside it, as `PROBES`, and the matrices of linear layers in
    fp32.
    """
    import torch

    # The process that waits for this one compiles kernels on one core. Threads that share that core spend
    # their time waiting for each other: with two on two cores, torch's vectors took 8 times as long.
    torch.set_num_threads(max(machine.threads() - 1, 1))
    splade = model.output == "sparse" and not model.card.has_m3_heads
    network = load_network(model, "AutoModelForMaskedLM" if splade else "AutoModel", target)
    body = network.base_model
    head = _splade_arrays(model.card, network) if splade else _head_arrays(model)
    np.savez(target, **vectors.network_arrays(body), **head)
    for file, matrices in vectors.network_matrices(body):
        np.save(target.with_name(file), matrices, allow_pickle=False)
    library_rows(model, max_positions(body.config.to_dict())).write(target.with_name(PROBES))


def _head_arrays(model: ResolvedModel) -> dict[str, Any]:
    """The arrays of the head of an output of BGE-M3, from the model's files; none of dense vectors."""
    if model.output == "dense":
        return {}
    folder = model.files.folder()
    head = {part: weights.float().numpy() for part, weights in read_head(folder, model.output).items()}
    arrays: dict[str, Any] = {f"head.{part}": head[part] for part in ("weight", "bias")}
    if model.output == "multivector":
        return {**arrays, **vectors.token_arrays(head["weight"], head["bias"])}
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=model.trust_remote_code)
    return {**arrays, "head.unused": unused_tokens(tokenizer)}


def _splade_arrays(card: ModelCard, network: Any) -> dict[str, Any]:
    """The arrays of the head of a SPLADE.

    Raises:
        ValueError: Its modules do more than a SPLADE.
    """
    if obstacle := splade_obstacle(card):
        raise ValueError(obstacle)
    pooling = {module.kind: module.config for module in card.modules}.get("SpladePooling", {})
    activation = pooling.get("activation_function", "relu")  # also of a bare masked language model
    return vectors.splade_arrays(*_head(network), LOGARITHMS[activation])


def _head(masked: Any) -> tuple[Any, Any, Any]:
    """The head's layers, which must be those of BERT and its kin, tied to the embeddings of words."""
    kind = type(masked).__name__
    if kind == "BertForMaskedLM":
        head = masked.cls.predictions
        layers = head.transform.dense, head.transform.LayerNorm, head.decoder
    elif kind == "DistilBertForMaskedLM":
        layers = masked.vocab_transform, masked.vocab_layer_norm, masked.vocab_projector
    elif kind in ("RobertaForMaskedLM", "XLMRobertaForMaskedLM", "MPNetForMaskedLM"):
        head = masked.lm_head
        layers = head.dense, head.layer_norm, head.decoder
    else:
        raise ValueError(f"it is a {kind}")
    if not layers[-1].weight.equal(masked.get_input_embeddings().weight):
        raise ValueError("the weights of its last layer are not those of its embeddings")
    return layers


if __name__ == "__main__":
    pack_model(*read_task())
