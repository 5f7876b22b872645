"""Encoder cross-encoders in PyTorch: a network with a classification head, for the backends that run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.torch.backend import TorchRunner
from pipeline.encoders.torch.first_token import limit_last_layer_to_first_token
from pipeline.rerankers.pairs import PairTokenizer, token_types

if TYPE_CHECKING:
    import torch

TYPES = "token_type_ids"


class TorchPairs(TorchRunner):
    """Computes pairs on a device; a subclass sets the tokenizer, and says how a batch is scored."""

    section = "rerank"
    length_setting = "rerank.max_length"
    tokenizer: PairTokenizer

    def tensors(self, batch: TokenBatch) -> dict[str, torch.Tensor]:
        """The network's inputs, on the device."""
        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask}
        types = token_types(batch, self.tokenizer.template)
        if types is not None:
            inputs[TYPES] = types
        return {name: self.on_device(array) for name, array in inputs.items()}


class Classifier(TorchPairs):
    """A network of transformers' `…ForSequenceClassification`, with one score."""

    network: Any

    def use(self, network: Any) -> None:
        """Take a loaded network; where its head reads the first token, the last layer computes no other."""
        self.network = network.to(device=self.device, dtype=self.dtype).eval()
        limit_last_layer_to_first_token(self.network.base_model)

    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """The logits of a batch, float32 [b] on the device."""
        import torch

        with torch.inference_mode():
            logits: torch.Tensor = self.network(**self.tensors(batch), return_dict=True).logits.float()
            return logits.reshape(len(batch.rows))


def load_classifier(folder: Path, trust_remote_code: bool) -> Any:
    """The network in fp32 as transformers loads it, for a process that converts it."""
    import torch
    from transformers import AutoModelForSequenceClassification

    from pipeline.encoders.torch.loading import describe_missing

    network, report = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=trust_remote_code, output_loading_info=True
    )
    missing = describe_missing(report["missing_keys"])
    if missing:
        raise ValueError(missing)
    if network.config.num_labels != 1:
        raise ValueError(f"it gives {network.config.num_labels} values for a pair")
    return network.eval()
