"""Packing of a model for the native backend, in a process of its own, which imports torch.

python -m pipeline.encoders.native_packing < TASK
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline.core import machine
from pipeline.encoders.agreement import LONGEST, PROBES, SHORT, sample_tokens
from pipeline.encoders.conversion import read_task
from pipeline.encoders.torch.loading import read_head
from pipeline.encoders.torch.plain import PlainModel, splade_logarithms
from pipeline.models.card import max_positions
from pipeline.models.model import ResolvedModel
from pipeline.native import vectors


def pack_model(model: ResolvedModel, target: Path) -> None:
    """Write a model to the `.npz` `target`.

    The tokenizer is beside it, as `tokenizer.json`. Rows of a few texts by torch go there, too, as `PROBES`,
    and the matrices of linear layers in fp32.
    """
    import torch

    # The process that waits for this one compiles kernels on one core. Threads that share that core spend
    # their time waiting for each other: with two on two cores, torch's vectors took 8 times as long.
    torch.set_num_threads(max(machine.threads() - 1, 1))
    tokenizer = Tokenizer.from_file(str(target.with_name("tokenizer.json")))
    plain = PlainModel(model)
    body = plain.network.base_model
    np.savez(target, **vectors.network_arrays(body), **_head_arrays(model, plain))
    for file, matrices in vectors.network_matrices(body):
        np.save(target.with_name(file), matrices, allow_pickle=False)
    many = model.output == "multivector"  # a row has a vector for each token
    most = min(SHORT if many else LONGEST, max_positions(body.config.to_dict()))
    plain.probes(sample_tokens(tokenizer, most, most // 8 if many else most)).write(target.with_name(PROBES))


def _head_arrays(model: ResolvedModel, plain: PlainModel) -> dict[str, Any]:
    """The arrays of the head of an output, from the model's files."""
    if model.output == "dense":
        return {}
    if not model.card.has_m3_heads:
        return vectors.splade_arrays(*_head(plain.network), splade_logarithms(model.card))
    head = {part: weights.float().numpy() for part, weights in read_head(plain.folder, model.output).items()}
    arrays: dict[str, Any] = {f"head.{part}": head[part] for part in ("weight", "bias")}
    if model.output == "sparse":
        return {**arrays, "head.unused": plain.unused}
    return {**arrays, **vectors.token_arrays(head["weight"], head["bias"])}


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
