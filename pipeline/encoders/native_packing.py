"""Packing of a model for the native backend, in a process of its own, which imports torch.

python -m pipeline.encoders.native_packing FOLDER OUT.npz SETTINGS

SETTINGS is the JSON of `pipeline.encoders.conversion.ConversionSettings`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from pipeline.core import machine
from pipeline.encoders.agreement import torch_vectors
from pipeline.encoders.conversion import ConversionSettings, pooled_network
from pipeline.encoders.torch.loading import (
    WORD_HEAD,
    loading,
    read_head,
    unused_tokens,
)
from pipeline.native import vectors

if TYPE_CHECKING:
    import torch

TORCH_VECTORS = "torch_vectors.npz"  # for the check of the packed model
LOGARITHMS = {"relu": 1, "log1p_relu": 2}
"""How many logarithms a weight goes through, by the activation of sentence-transformers' SpladePooling."""


def pack_model(folder: Path, target: Path, settings: ConversionSettings) -> None:
    """Write the model in `folder`, used with these settings, to the `.npz` `target`.

    The tokenizer is beside it, as `tokenizer.json`. Torch's vectors of a few texts go there, too, as
    `torch_vectors.npz`, and the matrices of linear layers in fp32.
    """
    import torch

    # The process that waits for this one compiles kernels on one core. Threads that share that core spend
    # their time waiting for each other: with two on two cores, torch's vectors took 8 times as long.
    torch.set_num_threads(max(machine.threads() - 1, 1))
    name, pad_id = settings.name, settings.pad_id
    tokenizer = Tokenizer.from_file(str(target.with_name("tokenizer.json")))
    network, head = _network(folder, settings)
    np.savez(target, **vectors.network_arrays(network.body), **head)
    for file, matrices in vectors.network_matrices(network.body):
        np.save(target.with_name(file), matrices, allow_pickle=False)
    expected = torch_vectors(network, name, tokenizer, pad_id)
    np.savez(target.with_name(TORCH_VECTORS), **expected._asdict())


def _network(folder: Path, settings: ConversionSettings) -> tuple[Any, dict[str, Any]]:
    """The network of an output in torch, and the arrays of its head."""
    if settings.output == "dense":
        return pooled_network(folder, settings), {}
    if (folder / WORD_HEAD).is_file():
        of_m3 = m3_network(folder, settings)
        return of_m3, of_m3.arrays
    splade = splade_network(folder, settings)
    transform, norm, decoder = splade.head
    return splade, vectors.splade_arrays(transform, norm, decoder, splade.logarithms)


def m3_network(folder: Path, settings: ConversionSettings) -> Any:
    """A torch module from token ids and mask, int64 [1, tokens], to what `vectors.PackedM3.compared` gives.

    Its attribute `body` is the network, and `arrays` are the head's.
    """
    import torch

    pooled = pooled_network(folder, settings)

    class M3Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = pooled.body
            self.arrays = _head_arrays(folder, settings.output, settings.trust_remote_code)
            self.weight, self.bias = (
                torch.from_numpy(self.arrays[f"head.{part}"]) for part in ("weight", "bias")
            )

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[0]
            numbers = torch.nn.functional.linear(hidden, self.weight, self.bias)
            return numbers[torch.from_numpy(vectors.even_places(len(numbers)))].reshape(1, -1)

    return M3Encoder()


def _head_arrays(folder: Path, output: str, trust_remote_code: bool) -> dict[str, Any]:
    """The arrays of the head of an output, from the model's files."""
    head = {part: weights.float().numpy() for part, weights in read_head(folder, output).items()}
    arrays: dict[str, Any] = {f"head.{part}": head[part] for part in ("weight", "bias")}
    if output == "sparse":
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        return {**arrays, "head.unused": unused_tokens(tokenizer)}
    return {**arrays, **vectors.token_arrays(head["weight"], head["bias"])}


def splade_network(folder: Path, settings: ConversionSettings) -> Any:
    """A torch module from token ids and mask, int64 [b, tokens], to word weights, float32 [b, words].

    Its attribute `body` is the network without its head; `head` are the head's layers: the first, its
    normalization, and the one to words; `logarithms` is as in `LOGARITHMS`.

    Raises:
        InputError: The model's files are damaged.
        ValueError: The model is no SPLADE, or its head is another one.
    """
    import torch
    from transformers import AutoModelForMaskedLM

    subfolder, logarithms = splade_chain(folder)
    with loading(settings.name):
        masked = AutoModelForMaskedLM.from_pretrained(
            folder / subfolder, dtype=torch.float32, trust_remote_code=settings.trust_remote_code
        )

    class SpladeEncoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.masked = masked.eval()
            self.body, self.head, self.logarithms = masked.base_model, _head(masked), logarithms

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            logits = self.masked(input_ids=input_ids, attention_mask=attention_mask).logits
            weights: torch.Tensor = (logits * attention_mask[..., None]).amax(1).relu()
            for _ in range(self.logarithms):
                weights = weights.log1p()
            return weights

    return SpladeEncoder()


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


def splade_chain(folder: Path) -> tuple[str, int]:
    """The network's folder in that of the model, and how many logarithms a weight goes through."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    except FileNotFoundError:  # a masked language model without files of sentence-transformers
        return "", LOGARITHMS["relu"]
    names = [module["type"].rpartition(".")[2] for module in modules]
    if names not in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"]):
        raise ValueError(f"its modules are {', '.join(names)}")
    pooling = json.loads((folder / modules[1]["path"] / "config.json").read_text(encoding="utf-8"))
    if pooling.get("pooling_strategy", "max") != "max":
        raise ValueError(f"its pooling strategy is {pooling['pooling_strategy']}")
    activation = pooling.get("activation_function", "relu")
    if activation not in LOGARITHMS:
        raise ValueError(f"its activation is {activation}")
    declared = folder / "config_sentence_transformers.json"
    settings = json.loads(declared.read_text(encoding="utf-8")) if declared.is_file() else {}
    if settings.get("max_active_dims") is not None or settings.get("similarity_fn_name") == "cosine":
        raise ValueError("it limits the number of words, or scales weights to length 1")
    return modules[0]["path"], LOGARITHMS[activation]


if __name__ == "__main__":
    pack_model(Path(sys.argv[1]), Path(sys.argv[2]), ConversionSettings(**json.loads(sys.argv[3])))
