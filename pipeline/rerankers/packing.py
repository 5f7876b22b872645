"""Cross-encoders packed for the kernels of `pipeline.encoders.native`, with their head in fp32.

The head of BERT, RoBERTa and XLM-RoBERTa reads the first token's hidden state alone: a linear layer, tanh,
and a linear layer with one output. BERT calls the first of them its pooler.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.records import Float32, Int64
from pipeline.encoders.native.packed_model import PackedNetwork
from pipeline.encoders.native.packing import network_arrays

_HEADS = {
    "transformers.models.bert.modeling_bert.BertForSequenceClassification": (
        "bert.pooler.dense",
        "classifier",
    ),
    "transformers.models.roberta.modeling_roberta.RobertaForSequenceClassification": (
        "classifier.dense",
        "classifier.out_proj",
    ),
    "transformers.models.xlm_roberta.modeling_xlm_roberta.XLMRobertaForSequenceClassification": (
        "classifier.dense",
        "classifier.out_proj",
    ),
}
"""The two linear layers of each class's head."""


def classifier_arrays(network: Any, precision: str) -> dict[str, Any]:
    """All arrays of a cross-encoder in fp32 or int16, by the names that `PackedClassifier` reads."""
    kind = f"{type(network).__module__}.{type(network).__name__}"
    if kind not in _HEADS:
        raise ValueError(f"it is a {type(network).__name__}")
    arrays = network_arrays(network.base_model, of_pairs=True, in_fp32=precision == "fp32")
    for name, module in zip(("dense", "out"), _HEADS[kind], strict=True):
        layer = network.get_submodule(module)
        arrays |= {f"head.{name}.{part}": getattr(layer, part).detach().float().numpy() for part in _PARTS}
    return arrays


_PARTS = ("weight", "bias")


class PackedClassifier(PackedNetwork):
    """A cross-encoder read from the `.npz` of `classifier_arrays`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with np.load(path, allow_pickle=False) as stored:
            self.dense, self.out = (
                tuple(stored[f"head.{name}.{part}"] for part in _PARTS) for name in ("dense", "out")
            )

    def scores(self, ids: Int64, mask: Int64, types: Int64 | None = None) -> Float32:
        """The logits float32 [b] of a batch; arguments as of `PackedNetwork.hidden`.

        `einsum` adds the products of a row in the same order whatever the number of rows, which a matrix
        product of BLAS does not: so a pair's score does not depend on the batch that it is in.
        """
        first, _ = self.hidden(ids, mask, True, types)
        pooled = np.tanh(np.einsum("bi,oi->bo", first, self.dense[0]) + self.dense[1])
        logits: Float32 = np.einsum("bi,oi->bo", pooled, self.out[0])[:, 0] + self.out[1]
        return logits
