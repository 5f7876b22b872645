"""The check of a converted model: it must give the vectors that torch gives for the same token ids.

Three texts are enough: one as long as the model allows up to `LONGEST` tokens, a shorter one, which is
padded, and one of a single token. They show a pooling, a mask, positions or a local attention window gone
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.records import Float32, Int64
from pipeline.encoders.torch.loading import describe_missing
from pipeline.models.card import max_positions

LONGEST = 300  # tokens of the longest text: more than any window of local attention
MIN_COSINE = 0.99999  # vectors with a lower cosine count as different


def pooled_network(folder: Path, pooling: str, normalize: bool, trust_remote_code: bool = False) -> Any:
    """A torch module from token ids and mask, int64 [b, tokens], to vectors float32 [b, dimension].

    Its attribute `body` is the network as transformers loads it from `folder`. The other arguments are
    settings of a `Model`.

    Raises:
        ValueError: The files lack weights.
    """
    import torch
    from transformers import AutoModel

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            body, report = AutoModel.from_pretrained(
                folder, dtype=torch.float32, trust_remote_code=trust_remote_code, output_loading_info=True
            )
            missing = describe_missing(report["missing_keys"])
            if missing:
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


class TorchVectors(NamedTuple):
    """Token ids of the three texts, and the vectors that torch gives for them.

    Attributes:
        ids: int64 [texts, tokens].
        mask: int64 [texts, tokens].
        vectors: float32 [texts, dimension].
    """

    ids: Int64
    mask: Int64
    vectors: Float32


def torch_vectors(network: Any, pad_id: int) -> TorchVectors:
    """Encode the three texts with a `pooled_network`; `pad_id` is the id of the padding token."""
    import torch

    most = min(LONGEST, max_positions(network.body.config.to_dict()))
    mask = (torch.arange(most) < torch.tensor([most, most // 6 + 1, 1])[:, None]).long()
    ids = torch.where(mask == 1, 5 + torch.arange(mask.numel()).view_as(mask) % 20, pad_id)
    with torch.inference_mode():
        return TorchVectors(ids.numpy(), mask.numpy(), network(ids, mask).numpy())


def gives_same_vectors(encode: Callable[[Int64, Int64], Float32], expected: TorchVectors) -> bool:
    """Whether a converted model, called with token ids and mask, gives torch's vectors."""
    found = encode(expected.ids, expected.mask)
    lengths = [np.linalg.norm(vectors, axis=1) for vectors in (found, expected.vectors)]
    return bool(((found * expected.vectors).sum(1) > MIN_COSINE * lengths[0] * lengths[1]).all())
