"""What the native backend prepares of a model for int8: layers in int8 and int16, chosen on passages."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.encoders import calibration
from pipeline.encoders.native import prepared
from pipeline.encoders.native.prepared import TOKENIZER, WEIGHTS
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.encoders.native.packed_model import PackedNetwork

log = logging.getLogger(__name__)

INT8_SCHEMA = 2
GOAL = 0.9995
"""The lowest cosine to fp32 of the passages that layers are chosen on; in a whole collection it is lower."""


def recipe(model: Model) -> Recipe:
    """Everything that shapes it: the model in int16, and the passages that it is calibrated on."""
    packed = prepared.recipe(model).key
    plain = {"int8": INT8_SCHEMA, "packed": packed, "goal": GOAL, **calibration.calibration_recipe(model)}
    return Recipe("native", plain)


def prepared_model(
    model: Model, store: Store, read: Callable[[Path], PackedNetwork], instead: str
) -> Artifact:
    """The packed model and its tokenizer, reused or made; arguments as of `prepared.prepared_model`."""
    packed = prepared.prepared_model(model, store, read, instead)
    return store.make(recipe(model), lambda draft: (_mix(model, packed, draft), {}))[0]


def _mix(model: Model, packed: Artifact, draft: Draft) -> dict[str, Any]:
    from tokenizers import Tokenizer

    from pipeline.encoders.native.choosing import mixture
    from pipeline.encoders.native.layers import Linear
    from pipeline.encoders.native.reference import LINEAR, matrix_file

    log.info("choosing the layers of %s to compute in int8, once", model.name)
    tokens = calibration.calibration_tokens(model, Tokenizer.from_file(str(packed.path(TOKENIZER))))
    made = mixture(packed.path(WEIGHTS), model.pooling, tokens, GOAL)
    replaced = {f"{kind}.{part}" for kind in LINEAR for part in Linear._fields}
    with np.load(packed.path(WEIGHTS), allow_pickle=False) as stored:
        kept: dict[str, Any] = {name: stored[name] for name in stored.files if name not in replaced}
    arrays: dict[str, Any] = kept | made.arrays
    with draft.file(WEIGHTS) as path, open(path, "wb") as file:
        np.savez(file, **arrays)
    for name in (TOKENIZER, *map(matrix_file, LINEAR)):
        with draft.file(name) as path:
            shutil.copyfile(packed.path(name), path)
    log.info(
        "%s is computed in int8 in %d of %d products, in int16 in the others; lowest cosine to fp32 %.4f on "
        "%d passages",
        model.name, made.narrow, made.layers, made.lowest, made.passages,
    )  # fmt: skip
    return {
        "name": model.name,
        "int8_products": made.narrow,
        "products": made.layers,
        "lowest_cosine": round(made.lowest, 6),
        "passages_compared": made.passages,
    }
