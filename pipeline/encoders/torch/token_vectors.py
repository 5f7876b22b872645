"""The base class of backends that run PyTorch for a vector of each token."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.records import Float32, Ragged
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.torch.backend import TorchRunner
from pipeline.models.model import Model

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer


class TokenVectorBackend(TorchRunner):
    """A torch model with the interface `batching.Backend`; a subclass loads it and computes vectors."""

    tokenizer: Tokenizer

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.model = model

    @abstractmethod
    def token_vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The vectors [b, n, dimension] of a batch's tokens, and a mask [b, n] of those that are kept.

        Both arguments are int64 [b, tokens] on the device; n may be another number.
        """

    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """See `packed`."""
        import torch

        with torch.inference_mode():
            vectors, kept = self.token_vectors(self.on_device(batch.ids), self.on_device(batch.mask))
            return packed(vectors, kept, self.model.normalize)

    def finish(self, count: int, computed: Float32) -> Ragged:
        """See `TorchRunner.finish`."""
        return kept_vectors(computed)


def packed(vectors: torch.Tensor, kept: torch.Tensor, normalize: bool) -> torch.Tensor:
    """The vectors of a batch's tokens, float32 [b, n, dimension + 1]; the last number is 1 if kept.

    The arguments are what `TokenVectorBackend.token_vectors` returns, and whether to scale to length 1.
    """
    import torch

    vectors = vectors.float()
    if normalize:
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    return torch.cat([vectors, kept[..., None].float()], dim=-1)


def kept_vectors(tokens: Float32) -> Ragged:
    """The vectors that are kept, of what `packed` returns."""
    kept = tokens[..., -1] > 0
    return Ragged(np.cumsum(kept.sum(axis=1)), (tokens[kept][:, :-1],))
