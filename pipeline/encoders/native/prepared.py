"""What the native backend prepares of a model: its weights packed in int16, checked, and its tokenizer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.errors import InputError
from pipeline.encoders import conversion
from pipeline.encoders.agreement import TorchVectors, disagreement
from pipeline.encoders.native import abilities
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.encoders.native.packed_model import PackedNetwork

log = logging.getLogger(__name__)

SCHEMA = 7
WEIGHTS, TOKENIZER = "weights.npz", "tokenizer.json"


def recipe(model: Model) -> Recipe:
    """The recipe of the packed model and its tokenizer."""
    return conversion.conversion_recipe(model, "native", SCHEMA, "numba")


def prepared_model(
    model: Model, store: Store, read: Callable[[Path], PackedNetwork], instead: str
) -> Artifact:
    """The packed model and its tokenizer, reused or made.

    Args:
        model: The model.
        store: Where it is kept.
        read: Reads the packed network from its file.
        instead: What to set if the model cannot be packed, or gives other vectors than torch.
    """

    def make(draft: Draft) -> tuple[dict[str, Any], dict[str, Any]]:
        return _pack(model, draft, read, instead), {}

    return store.make(recipe(model), make)[0]


def _pack(model: Model, draft: Draft, read: Callable[[Path], PackedNetwork], instead: str) -> dict[str, Any]:
    from pipeline.encoders.native.forward import compile_forward
    from pipeline.encoders.native.packing import TORCH_VECTORS
    from pipeline.encoders.native.reference import LINEAR, matrix_file

    log.info("packing %s in int16, once", model.name)
    with draft.scratch() as aside, ThreadPoolExecutor(1) as thread:
        if model.config.get("model_type") in abilities.PLAIN:
            thread.submit(compile_forward)  # while a subprocess packs the model
        conversion.convert_in_subprocess(
            model,
            "pipeline.encoders.native.packing",
            aside / WEIGHTS,
            made="packed in int16",
            allowed=abilities.LIMITS,
            fix=instead,
        )
        with np.load(aside / TORCH_VECTORS, allow_pickle=False) as stored:
            expected = TorchVectors(**stored)
        differs = disagreement(read(aside / WEIGHTS).compared, expected, "int16")
        if differs:
            raise InputError(f"model '{model.name}' cannot be computed in int16: {differs}", fix=instead)
        conversion.keep_files(aside, draft, (WEIGHTS, TOKENIZER, *map(matrix_file, LINEAR)))
    return {"name": model.name}
