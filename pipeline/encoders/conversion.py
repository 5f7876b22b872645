"""How does a torch model become an OpenVINO one? Traced once, with pooling and normalization inside.

python -m pipeline.encoders.conversion FOLDER OUT.xml '{"pooling": "cls", "normalize": true, "pad_id": 0}'
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from pipeline.encoders.first_token import last_layer_on_first_token
from pipeline.encoders.loading import lacking
from pipeline.openvino_runtime import import_openvino


def convert(
    folder: Path, target: Path, pooling: str, normalize: bool, pad_id: int, trust_remote_code: bool = False
) -> None:
    """Write a model as OpenVINO IR.

    Args:
        folder: Of the model's files.
        target: The `.xml` to write; the weights go beside it, as `.bin`, in fp32.
        pooling: `cls`, `mean` or `last_token`.
        normalize: Whether vectors are scaled to length 1.
        pad_id: The padding token.
        trust_remote_code: Whether Python files that come with the model may run.
    """
    openvino = import_openvino()
    network, example = _torch_network(folder, pooling, normalize, pad_id, trust_remote_code)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = openvino.convert_model(network, example_input=example)
    openvino.save_model(converted, str(target), compress_to_fp16=False)


def _torch_network(
    folder: Path, pooling: str, normalize: bool, pad_id: int, trusted: bool
) -> tuple[Any, dict[str, Any]]:
    """A torch module from token ids and mask to vectors, and example inputs to trace it with."""
    import torch
    from transformers import AutoModel

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            body, loading = AutoModel.from_pretrained(
                folder, dtype=torch.float32, trust_remote_code=trusted, output_loading_info=True
            )
            if missing := lacking(loading["missing_keys"]):
                raise ValueError(missing)
            self.body = body.eval()
            if pooling == "cls":
                last_layer_on_first_token(self.body)

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

    ids = torch.full((2, 7), pad_id + 5)
    mask = torch.ones_like(ids)
    ids[1, 5:], mask[1, 5:] = pad_id, 0
    return Network(), {"input_ids": ids, "attention_mask": mask}


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3]))
