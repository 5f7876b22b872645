"""A SPLADE in torch, as the native backend packs it: a masked language model and its head's layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.encoders.conversion import Settings
from pipeline.encoders.torch.loading import describe_missing, explain_loading_errors
from pipeline.models.files import damaged

if TYPE_CHECKING:
    import torch

LOGARITHMS = {"relu": 1, "log1p_relu": 2}
"""How many logarithms a weight goes through, by the activation of sentence-transformers' SpladePooling."""


def splade_network(folder: Path, settings: Settings) -> Any:
    """A torch module from token ids and mask, int64 [b, tokens], to word weights, float32 [b, words].

    Its attribute `body` is the network without its head; `head` are the head's layers: the first, its
    normalization, and the one to words; `logarithms` is as in `LOGARITHMS`.

    Raises:
        InputError: The model's files are damaged.
        ValueError: The model is no SPLADE, or its head is another one.
    """
    import torch
    from transformers import AutoModelForMaskedLM

    subfolder, logarithms = _chain(folder)
    with explain_loading_errors(settings):
        masked, report = AutoModelForMaskedLM.from_pretrained(
            folder / subfolder,
            dtype=torch.float32,
            trust_remote_code=settings.trust_remote_code,
            output_loading_info=True,
        )
    missing = describe_missing(report["missing_keys"])
    if missing:
        raise damaged(f"model '{settings.name}': {missing}")

    class Network(torch.nn.Module):
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

    return Network()


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


def _chain(folder: Path) -> tuple[str, int]:
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
    own = folder / "config_sentence_transformers.json"
    settings = json.loads(own.read_text(encoding="utf-8")) if own.is_file() else {}
    if settings.get("max_active_dims") is not None or settings.get("similarity_fn_name") == "cosine":
        raise ValueError("it limits the number of words, or scales weights to length 1")
    return modules[0]["path"], LOGARITHMS[activation]
