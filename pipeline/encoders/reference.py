"""What vectors does torch give for a model? What a backend makes of the model is compared with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.encoders.loading import lacking
from pipeline.encoders.models import positions
from pipeline.records import Float32, Int64

LONG = 300  # tokens of the longest text that both are asked for: beyond any window of local attention
CLOSE = 0.99999  # the lowest cosine at which vectors count as the same


def torch_network(folder: Path, pooling: str, normalize: bool, trust_remote_code: bool = False) -> Any:
    """A torch module from token ids and mask, int64 [b, tokens], to vectors; its `body` is the model.

    Args:
        folder: Of the model's files.
        pooling: `cls`, `mean` or `last_token`.
        normalize: Whether vectors are scaled to length 1.
        trust_remote_code: Whether Python files that come with the model may run.

    Raises:
        ValueError: The files lack weights.
    """
    import torch
    from transformers import AutoModel

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            body, loading = AutoModel.from_pretrained(
                folder, dtype=torch.float32, trust_remote_code=trust_remote_code, output_loading_info=True
            )
            if missing := lacking(loading["missing_keys"]):
                raise ValueError(missing)
            self.body = body.eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            if pooling == "cls":
                pooled = hidden[:, 0]
            elif pooling == "mean":
                mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
                pooled = (hidden * mask).sum(1) / mask.sum(1)
            else:
                last = attention_mask.sum(1) - 1
                pooled = hidden[torch.arange(hidden.shape[0]), last]
            return torch.nn.functional.normalize(pooled, dim=-1) if normalize else pooled

    return Network()


class Comparison:
    """Whether what was made of a model gives the vectors of the torch model.

    Args:
        network: The torch model, which is asked now.
        pad_id: The padding token.
    """

    def __init__(self, network: Any, pad_id: int) -> None:
        import torch

        most = min(LONG, positions(network.body.config.to_dict()))
        mask = (torch.arange(most) < torch.tensor([most, most // 6 + 1, 1])[:, None]).long()
        ids = torch.where(mask == 1, 5 + torch.arange(mask.numel()).view_as(mask) % 20, pad_id)
        with torch.inference_mode():
            self.vectors = network(ids, mask).numpy()
        self.ids, self.mask = ids.numpy(), mask.numpy()

    def __call__(self, encode: Callable[[Int64, Int64], Float32]) -> bool:
        """Whether `encode` gives those, float32 [b, dimension], for token ids and mask, int64 [b, tokens]."""
        found = encode(self.ids, self.mask)
        lengths = [np.linalg.norm(vectors, axis=1) for vectors in (found, self.vectors)]
        return bool(((found * self.vectors).sum(1) > CLOSE * lengths[0] * lengths[1]).all())
