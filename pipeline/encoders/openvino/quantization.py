"""Quantization of a converted model to int8 by NNCF, calibrated on passages of the corpus.

python -m pipeline.encoders.openvino.quantization MODEL.xml OUT.xml BATCHES.npz

The batches are arrays `ids-N` and `mask-N`, int64 [b, tokens].
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

from pipeline.core.installation import import_openvino, require


def nncf_version() -> str:
    """The version of the installed package nncf, which is part of the key."""
    require("nncf", "int8", "model.precision: int8")
    return version("nncf")


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
    quantize(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
