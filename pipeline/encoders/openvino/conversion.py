"""Conversion of a torch model to OpenVINO, by tracing it together with its pooling, and to int8 by NNCF.

python -m pipeline.encoders.openvino.conversion FOLDER OUT.xml SETTINGS
python -m pipeline.encoders.openvino.conversion MODEL.xml OUT.xml BATCHES.npz

SETTINGS is the JSON of `pipeline.encoders.conversion.Settings`. The batches are arrays `ids-N` and `mask-N`,
int64 [b, tokens].
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.installation import import_openvino
from pipeline.core.records import Float32, Int64
from pipeline.encoders.agreement import disagreement, torch_vectors
from pipeline.encoders.conversion import Settings, pooled_network
from pipeline.encoders.torch.loading import limit_last_layer_to_first_token
from pipeline.models.tokenizer import write_tokenizer

if TYPE_CHECKING:
    import openvino

    from pipeline.encoders.agreement import PooledNetwork


def convert(folder: Path, target: Path, settings: Settings) -> None:
    """Write the model in `folder` as OpenVINO IR, used with these settings.

    `target` is the `.xml` to write. The weights go beside it as `.bin`, in fp32, and the tokenizer as
    `tokenizer.json`.
    """
    pad_id = settings.pad_id
    tokenizer = write_tokenizer(
        folder, target.with_name("tokenizer.json"), settings.name, settings.trust_remote_code
    )
    network = pooled_network(folder, settings)
    expected = torch_vectors(network, settings.name, tokenizer, pad_id)
    if settings.pooling == "cls":
        limit_last_layer_to_first_token(network.body)
    converted = _traced(network, pad_id)
    if disagreement(_run(converted), expected, "fp32"):
        # OpenVINO's attention operation gives NaN if a local window holds nothing but padding
        network.body.set_attn_implementation("eager")
        converted = _traced(network, pad_id)
        differs = disagreement(_run(converted), expected, "fp32")
        if differs:
            raise ValueError(f"the traced model gives other vectors than torch: {differs}")
    import_openvino().save_model(converted, str(target), compress_to_fp16=False)


def _traced(network: PooledNetwork, pad_id: int) -> openvino.Model:
    """The OpenVINO model of a torch one; the example batch has padding, so that no mask is constant."""
    import torch

    ids = torch.full((2, 7), pad_id + 5)
    mask = torch.ones_like(ids)
    ids[1, 5:] = pad_id
    mask[1, 5:] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_openvino().convert_model(
            network, example_input={"input_ids": ids, "attention_mask": mask}
        )


def _run(converted: openvino.Model) -> Callable[[Int64, Int64], Float32]:
    compiled = import_openvino().compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda ids, mask: compiled({"input_ids": ids, "attention_mask": mask})[0]


def quantize(source: Path, target: Path, batches: Path) -> None:
    """Write a converted model whose matrix products take weights and activations in int8.

    `source` and `target` are `.xml` files with weights beside them, `batches` the `.npz` of calibration
    batches.
    """
    openvino = import_openvino()
    import nncf

    with np.load(batches, allow_pickle=False) as stored:
        inputs = [
            {"input_ids": stored[name], "attention_mask": stored[name.replace("ids", "mask")]}
            for name in stored.files
            if name.startswith("ids")
        ]
    quantized = nncf.quantize(
        openvino.Core().read_model(source),
        nncf.Dataset(inputs),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.MIXED,  # activations are skewed after GELU, weights are not
        subset_size=len(inputs),
    )
    openvino.save_model(quantized, str(target), compress_to_fp16=False)


if __name__ == "__main__":
    source, target, how = sys.argv[1:]
    if how.endswith(".npz"):
        quantize(Path(source), Path(target), Path(how))
    else:
        convert(Path(source), Path(target), Settings(**json.loads(how)))
