"""The opening of a backend that runs PyTorch: its device, its memory, and its rows in fp16 and bf16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Int32
from pipeline.encoders.agreement import SHORT, Probes, sample_tokens
from pipeline.encoders.torch.backend import TorchBackend
from pipeline.encoders.torch.devices import fitting, free_memory, is_out_of_memory
from pipeline.models.model import ResolvedModel

Load = Callable[[ResolvedModel], TorchBackend]
"""A class of `TorchBackend`."""


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
            tokens = sample_tokens(backend.tokenizer, max(model.max_lengths.values()), SHORT)
            if model.precision == "fp32":
                Probes.by(backend, tokens)
                return backend
            difference = _in_fp32(load, model, tokens).compare(backend.forward, model.precision).problem
            free_memory(backend.device)
            if difference:
                wider = "bf16 or fp32" if model.precision == "fp16" else "fp32"
                raise InputError(
                    f"model '{model.name}' cannot be computed in {model.precision}: {difference}",
                    fix=f"set model.precision to {wider}",
                )
    return backend


def _in_fp32(load: Load, model: ResolvedModel, tokens: Sequence[Int32]) -> Probes:
    """Rows of the same texts in fp32; on the CPU if the device has no room for both."""
    if model.device != "cpu":
        try:
            return Probes.by(load(replace(model, precision="fp32")), tokens)
        except (RuntimeError, InputError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
    return Probes.by(load(replace(model, precision="fp32", device="cpu")), tokens)
