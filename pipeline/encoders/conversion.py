"""How does a torch model become an OpenVINO one? Traced once, with pooling and normalization inside.

python -m pipeline.encoders.conversion FOLDER OUT.xml '{"pooling": "cls", "normalize": true, "pad_id": 0}'
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.encoders.first_token import last_layer_on_first_token
from pipeline.encoders.loading import behind, lacking
from pipeline.encoders.models import positions
from pipeline.openvino_runtime import import_openvino

LONG = 300  # tokens of the longest text that both models are asked for: beyond any window of local attention


def convert(
    folder: Path, target: Path, pooling: str, normalize: bool, pad_id: int, trust_remote_code: bool = False
) -> None:
    """Write a model as OpenVINO IR.

    Args:
        folder: Of the model's files.
        target: The `.xml` to write; the weights go beside it, as `.bin`, in fp32, and the tokenizer that
            transformers makes of the model's files, as `tokenizer.json`.
        pooling: `cls`, `mean` or `last_token`.
        normalize: Whether vectors are scaled to length 1.
        pad_id: The padding token.
        trust_remote_code: Whether Python files that come with the model may run.

    Raises:
        ValueError: The model has no fast tokenizer, or what was traced gives other vectors.
    """
    from transformers import AutoTokenizer

    openvino = import_openvino()
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    if (fast := behind(tokenizer)) is None:
        raise ValueError(f"it has only a slow tokenizer, {type(tokenizer).__name__}")
    network, example = _torch_network(folder, pooling, normalize, pad_id, trust_remote_code)
    same = _Comparison(network, pad_id)
    converted = _traced(network, example)
    if not same(converted):  # OpenVINO's own attention gives NaN where a window holds padding alone
        network.body.set_attn_implementation("eager")
        converted = _traced(network, example)
        if not same(converted):
            raise ValueError("what OpenVINO traces gives other vectors")
    openvino.save_model(converted, str(target), compress_to_fp16=False)
    fast.save(str(target.with_name("tokenizer.json")))


def _traced(network: Any, example: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_openvino().convert_model(network, example_input=example)


class _Comparison:
    """Whether a converted model gives the vectors of the torch model, for texts as it was not traced with.

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
        self.inputs = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}

    def __call__(self, converted: Any) -> bool:
        compiled = import_openvino().compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        found = compiled(self.inputs)[0]
        lengths = [np.linalg.norm(vectors, axis=1) for vectors in (found, self.vectors)]
        return bool(((found * self.vectors).sum(1) > 0.99999 * lengths[0] * lengths[1]).all())


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
