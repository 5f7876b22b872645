"""How does a torch model become an OpenVINO one? Traced once, with pooling and normalization inside.

python -m pipeline.encoders.openvino.conversion FOLDER OUT.xml \
     '{"pooling": "cls", "normalize": true, "pad_id": 0}'
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.core.openvino_runtime import import_openvino
from pipeline.core.records import Float32, Int64
from pipeline.encoders.reference import agrees, expected, torch_network
from pipeline.encoders.torch.first_token import last_layer_on_first_token
from pipeline.models.loading import write_tokenizer


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
    openvino = import_openvino()
    write_tokenizer(folder, target.with_name("tokenizer.json"), trust_remote_code)
    network = torch_network(folder, pooling, normalize, trust_remote_code)
    wanted = expected(network, pad_id)
    if pooling == "cls":
        last_layer_on_first_token(network.body)
    converted = _traced(network, pad_id)
    if not agrees(_run(converted), wanted):
        # OpenVINO's own attention gives NaN where a window holds padding alone
        network.body.set_attn_implementation("eager")
        converted = _traced(network, pad_id)
        if not agrees(_run(converted), wanted):
            raise ValueError("what OpenVINO traces gives other vectors")
    openvino.save_model(converted, str(target), compress_to_fp16=False)


def _traced(network: Any, pad_id: int) -> Any:
    import torch

    ids = torch.full((2, 7), pad_id + 5)
    mask = torch.ones_like(ids)
    ids[1, 5:], mask[1, 5:] = pad_id, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_openvino().convert_model(
            network, example_input={"input_ids": ids, "attention_mask": mask}
        )


def _run(converted: Any) -> Callable[[Int64, Int64], Float32]:
    compiled = import_openvino().compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda ids, mask: compiled({"input_ids": ids, "attention_mask": mask})[0]


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3]))
