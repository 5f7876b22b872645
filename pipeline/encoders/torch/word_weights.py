"""The base class of backends that run PyTorch for word weights, and the head of SPLADE."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.records import Float32, Ragged
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.torch.backend import TorchRunner
from pipeline.models.model import Model

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

LOGITS = 1 << 21  # numbers that the head computes at a time: 8 MB


class WordWeightBackend(TorchRunner):
    """A torch model with the interface `batching.Backend`; a subclass loads it and computes weights."""

    tokenizer: Tokenizer

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.model = model

    @abstractmethod
    def weights(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The weights [b, words] of a batch, mostly 0; both arguments are int64 [b, tokens] on the device."""

    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """For each row its number of words, then the words of all rows, then their weights.

        One tensor of float32 numbers, as a batch is fetched in one copy; the bits of the first two are int32.
        """
        import torch

        with torch.inference_mode():
            weights = self.weights(self.on_device(batch.ids), self.on_device(batch.mask)).float()
            rows, words = weights.nonzero(as_tuple=True)
            counts = torch.bincount(rows, minlength=len(batch.rows))
            numbers = torch.cat([counts, words]).to(torch.int32).view(torch.float32)
            return torch.cat([numbers, weights[rows, words]])

    def finish(self, count: int, computed: Float32) -> Ragged:
        """See `TorchRunner.finish`."""
        return _unpacked(computed, count)


def _unpacked(packed: Float32, count: int) -> Ragged:
    """The `count` rows of what `compute` returns."""
    entries = (len(packed) - count) // 2
    lengths, words = np.split(packed[: count + entries].view(np.int32), [count])
    return Ragged(np.cumsum(lengths, dtype=np.int64), (words, packed[count + entries :]))


class SpladeHead:
    """A masked language model whose last layer gives, for each word, its largest logit over a text's tokens.

    That layer makes a number for each token and each word, of which a text keeps one for each word. Here it
    is computed for some words at a time, and only the largest are kept, so a batch needs `LOGITS` numbers.

    Args:
        network: A masked language model of transformers; its last layer is taken out of it.
    """

    def __init__(self, network: Any) -> None:
        import torch

        self.network = network
        self.last = network.get_output_embeddings()
        places = [
            (module, name)
            for module in network.modules()
            for name, child in module.named_children()
            if child is self.last
        ]
        for module, name in places:
            setattr(module, name, torch.nn.Identity())

    def largest(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The largest logits [b, words] of a batch, int64 [b, tokens] with its mask."""
        import torch

        hidden = self.network(input_ids=ids, attention_mask=mask, return_dict=True).logits
        hidden = torch.where(mask[..., None].bool(), hidden, hidden[:, :1])  # padding repeats the first token
        weight, bias = self.last.weight, self.last.bias
        made = hidden.new_empty((len(ids), len(weight)))
        step = max(LOGITS // (hidden.shape[0] * hidden.shape[1]), 64)
        for start in range(0, len(weight), step):
            part = slice(start, start + step)
            logits = torch.nn.functional.linear(hidden, weight[part], None if bias is None else bias[part])
            torch.amax(logits, 1, out=made[:, part])
        return made
