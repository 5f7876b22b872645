"""What vectors does torch give for a model? What a backend makes of the model is compared with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.records import Float32, Int64
from pipeline.models.loading import lacking
from pipeline.models.model import positions

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


class Expected(NamedTuple):
    """What a torch model gives for a long, a short and a shortest text.

    Attributes:
        ids: int64 [texts, tokens].
        mask: int64 [texts, tokens].
        vectors: float32 [texts, dimension].
    """

    ids: Int64
    mask: Int64
    vectors: Float32


def expected(network: Any, pad_id: int) -> Expected:
    """Ask a `torch_network`; `pad_id` is the padding token."""
    import torch

    most = min(LONG, positions(network.body.config.to_dict()))
    mask = (torch.arange(most) < torch.tensor([most, most // 6 + 1, 1])[:, None]).long()
    ids = torch.where(mask == 1, 5 + torch.arange(mask.numel()).view_as(mask) % 20, pad_id)
    with torch.inference_mode():
        return Expected(ids.numpy(), mask.numpy(), network(ids, mask).numpy())


def agrees(encode: Callable[[Int64, Int64], Float32], expected: Expected) -> bool:
    """Whether what was made of the model gives the same vectors for those token ids and that mask."""
    found = encode(expected.ids, expected.mask)
    lengths = [np.linalg.norm(vectors, axis=1) for vectors in (found, expected.vectors)]
    return bool(((found * expected.vectors).sum(1) > CLOSE * lengths[0] * lengths[1]).all())
