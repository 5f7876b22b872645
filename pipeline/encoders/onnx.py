"""The `onnx` backend: a model's own ONNX file, run by ONNX Runtime on the CPU.

Nothing is converted. Where the model's folder has weights too, rows of its library are computed once, in a
process of its own:

python -m pipeline.encoders.onnx < TASK
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from typing_extensions import override

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.installation import require
from pipeline.core.records import Float32, Int64, JsonObject
from pipeline.encoders import conversion
from pipeline.encoders.agreement import PROBES
from pipeline.encoders.batching import TokenBatch, unknown_token
from pipeline.encoders.conversion import Conversion
from pipeline.models.card import max_positions
from pipeline.models.model import ResolvedModel
from pipeline.models.onnx_file import TEXT_VECTORS
from pipeline.models.resolution import DEFAULT_LENGTH
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)

SCHEMA = 1
TOKENS = 1024  # tokens of a batch, padding included


class OnnxConversion(Conversion):
    """The rows of the model's library, which those of its ONNX file are compared with."""

    @override
    def is_exact(self, model: ResolvedModel) -> bool:
        assert model.onnx is not None
        return model.onnx.is_exact

    @override
    def fix(self, model: ResolvedModel) -> str:
        return "export the model again, or set model.backend to flag"

    @override
    def recipe(self, model: ResolvedModel) -> Recipe:
        require("onnxruntime", "onnx", "model.backend: onnx")
        assert model.onnx is not None
        return conversion.conversion_recipe(
            model, "onnx", SCHEMA, "onnxruntime", file=model.onnx.name, compared=model.files.has_weights
        )

    @override
    def make(self, model: ResolvedModel, store: Store) -> Artifact:
        return store.make(self.recipe(model), lambda draft: self._library_rows(model, draft))

    def _library_rows(self, model: ResolvedModel, draft: Draft) -> JsonObject:
        """Keep rows of the model's library; where it has none, what kept them from being computed."""
        if not model.files.has_weights:
            return {"not_compared": "the model's folder has no other weights"}
        log.info("computing a few texts by the library of %s, once", model.name)
        try:
            fix = self.fix(model)
            return conversion.convert(model, draft, __name__, (PROBES,), "run by its library", "", fix)
        except InputError as error:
            return {"not_compared": error.found}


class OnnxBackend:
    """A model's ONNX file, loaded: a `batching.Backend`; `prepared` is not read."""

    token_budget, computes_padding, width_multiple = TOKENS, True, 1
    reads_padding, embedded = False, None  # ONNX Runtime refuses unknown tokens itself

    def __init__(self, model: ResolvedModel, prepared: Path) -> None:
        import onnxruntime

        assert model.onnx is not None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = machine.threads()
        options.log_severity_level = 3  # errors alone
        path = model.files.folder() / model.onnx.name
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        except Exception as error:  # one of many classes of onnxruntime, all of them under this one
            raise InputError(
                f"ONNX Runtime cannot load {model.onnx.name} of model '{model.name}': "
                f"{str(error).splitlines()[0]}",
                fix="export the model again, or set another model.file",
            ) from None
        self.name, self.pad_id, self.pooling = model.name, model.pad_id, model.pooling
        self.output = model.onnx.output(model.pooling)
        self.tokenizer = model.tokenizer.load()
        self.types = {
            each.name: np.int32 if "int32" in each.type else np.int64 for each in self.session.get_inputs()
        }
        probe = np.full((1, 3), self.pad_id)
        self.dimension = int(
            self.vectors(TokenBatch(np.zeros(1, np.int64), probe, np.ones_like(probe))).shape[1]
        )

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Float32]]:
        """For each batch its `rows` and its vectors, float32 [b, dimension]."""
        for batch in batches:
            yield batch.rows, self.vectors(batch)

    def vectors(self, batch: TokenBatch) -> Float32:
        """The vectors of a batch, float32 [b, dimension].

        Raises:
            InputError: The file does not compute the batch, as where a token has no embedding.
        """
        given = {
            "input_ids": batch.ids,
            "attention_mask": batch.mask,
            "token_type_ids": np.zeros_like(batch.ids),
            "position_ids": np.broadcast_to(np.arange(batch.ids.shape[1]), batch.ids.shape),
        }
        try:
            (computed,) = self.session.run(
                [self.output], {name: given[name].astype(kind) for name, kind in self.types.items()}
            )
        except Exception as error:
            if outside := re.search(r"idx=(\d+) must be within.*,(\d+)\]", str(error)):
                raise unknown_token(self.name, int(outside[1]), int(outside[2])) from None
            raise InputError(
                f"the ONNX file of model '{self.name}' does not compute {batch.ids.shape[0]} texts of "
                f"{batch.ids.shape[1]} tokens: {str(error).splitlines()[0]}",
                fix="export the model again, with the axes of texts and tokens dynamic",
            ) from None
        states: Float32 = computed.astype(np.float32, copy=False)
        if states.ndim == 2:
            return states
        if self.pooling == "cls":
            return states[:, 0]
        if self.pooling == "last_token":
            last: Float32 = states[np.arange(len(states)), batch.mask.sum(axis=1) - 1]
            return last
        weights = batch.mask[..., None].astype(np.float32)
        pooled: Float32 = (states * weights).sum(axis=1) / weights.sum(axis=1)
        return pooled


load, CONVERSION = OnnxBackend, OnnxConversion()


if __name__ == "__main__":
    model, target = conversion.read_task()
    if model.pooling == TEXT_VECTORS:  # the file pools by itself, as the model's files say
        model = replace(model, pooling=model.card.pooling or "")
    conversion.library_rows(model, min(DEFAULT_LENGTH, max_positions(model.card.config))).write(target)
