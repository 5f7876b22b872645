"""The base class of backends that run PyTorch for a vector of each token."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.records import Float32, Int64, Ragged
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
        """The vectors of a batch's tokens, float32 [b, n, dimension + 1]; the last number is 1 if kept."""
        import torch

        with torch.inference_mode():
            vectors, kept = self.token_vectors(self.on_device(batch.ids), self.on_device(batch.mask))
            vectors = vectors.float()
            if self.model.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
            return torch.cat([vectors, kept[..., None].float()], dim=-1)

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Ragged]]:  # type: ignore[override]
        """See `pipeline.encoders.batching.Backend`."""
        for rows, tokens in super().forward(batches):
            yield rows, _kept(tokens)


def _kept(tokens: Float32) -> Ragged:
    """The vectors that are kept, of what `compute` returns."""
    kept = tokens[..., -1] > 0
    return Ragged(np.cumsum(kept.sum(axis=1)), (tokens[kept][:, :-1],))
