"""The opening of a backend that runs PyTorch: its device, its memory, and its vectors in fp16 and bf16."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Int32, Ragged
from pipeline.encoders.agreement import LIMITS, farthest, row_as_vector, sample_tokens
from pipeline.encoders.batching import RowArrays, Usage, batches, in_order
from pipeline.encoders.torch.backend import TorchBackend
from pipeline.encoders.torch.devices import fitting, free_memory, is_out_of_memory
from pipeline.models.model import ResolvedModel
from pipeline.storage.vector_forms import cosines

log = logging.getLogger(__name__)

SHORT = 256  # tokens of a text that is compared, besides the longest one
Load = Callable[[ResolvedModel], TorchBackend]


def open_backend(load: Load, model: ResolvedModel) -> TorchBackend:
    """Load a model; compare its vectors in fp16 and bf16 with those in fp32; let a GPU choose kernels.

    Raises:
        InputError: The device cannot be used, the model does not fit into its memory, or its vectors are too
            far from those in fp32.
    """
    with fitting(model, "model"):
        backend = load(model)
        if model.precision == "fp32" and backend.device.type == "cpu":
            return backend
        with machine.preparing():
            texts = _sample(backend)
            rows = _encode(backend, texts)
            if model.precision != "fp32":
                difference = _difference(rows, _in_fp32(load, model, texts), texts, model.precision)
                free_memory(backend.device)
                if difference:
                    wider = "bf16 or fp32" if model.precision == "fp16" else "fp32"
                    raise InputError(
                        f"model '{model.name}' cannot be computed in {model.precision}: {difference}",
                        fix=f"set model.precision to {wider}",
                    )
    return backend


def _sample(backend: TorchBackend) -> list[Int32]:
    """Token ids of short texts and of one that is as long as the model reads them."""
    longest, *others = sample_tokens(backend.tokenizer, max(backend.model.max_lengths.values()))
    return [longest, *(ids for ids in others if len(ids) <= SHORT)]


def _encode(backend: TorchBackend, texts: Sequence[Int32]) -> RowArrays:
    windows = [list(enumerate(texts))]
    return in_order(backend.forward(batches(backend, windows, len(texts[0]), Usage())), len(texts))


def _in_fp32(load: Load, model: ResolvedModel, texts: Sequence[Int32]) -> RowArrays:
    """The rows of the same model in fp32; on the CPU if the device has no room for both."""
    if model.device != "cpu":
        try:
            return _encode(load(replace(model, precision="fp32")), texts)
        except (RuntimeError, InputError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
    return _encode(load(replace(model, precision="fp32", device="cpu")), texts)


def _difference(rows: RowArrays, expected: RowArrays, texts: Sequence[Int32], precision: str) -> str | None:
    """How rows differ from those of fp32 beyond the limit of a precision; None if they do not."""
    if not isinstance(rows, Ragged) or not isinstance(expected, Ragged):
        assert not isinstance(rows, Ragged)
        assert not isinstance(expected, Ragged)
        return farthest(rows, expected, np.array([len(ids) for ids in texts]), precision)
    words = 0
    if len(expected.columns) == 2:
        words = 1 + max(int(some.columns[0].max(initial=0)) for some in (rows, expected))
    for row, ids in enumerate(texts):
        one, two = (row_as_vector(some, row, words) for some in (rows, expected))
        if not one.any() and not two.any():  # a text without words
            continue
        (cosine,) = cosines(one[None], two[None])
        if not cosine >= LIMITS[precision]:
            return (
                f"a text of {len(ids)} tokens has a cosine of {cosine:.6f} to that of fp32, and the limit is "
                f"{LIMITS[precision]:g}"
            )
    return None
