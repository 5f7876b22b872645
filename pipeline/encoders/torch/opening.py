"""The opening of a backend that runs PyTorch: its device, its memory, and the check of its rows.

In fp16 and bf16, rows are compared with those of fp32 each time.
"""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from typing_extensions import override

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Facts, Int32
from pipeline.encoders.agreement import SHORT, NoReferenceError, Probes, sample_tokens
from pipeline.encoders.batching import Backend
from pipeline.encoders.opener import Encoder, TextOpener
from pipeline.encoders.torch.backend import TorchBackend
from pipeline.encoders.torch.devices import fitting, free_memory, is_out_of_memory
from pipeline.encoders.torch.plain import PlainModel
from pipeline.models.card import max_positions
from pipeline.models.model import ResolvedModel
from pipeline.storage.store import Store

FEW = 32  # tokens of the other texts that are compared with a `PlainModel`
SMALL = 200_000_000  # bytes of weights; below, a second thread saves no time
Load = Callable[[ResolvedModel], TorchBackend]


class TorchOpener(TextOpener):
    """A backend that runs a model's own files in PyTorch."""

    @abstractmethod
    def loads(self) -> Load:
        """What loads the output of the model."""

    @override
    def load_backend(self, prepared: Path | None) -> Backend:
        return open_backend(self.loads(), self.model)

    @override
    def open(self, store: Store) -> Encoder:
        encoder: Encoder = super().open(store)
        self.compare(store, lambda: encoder.backend, self._probes)
        return encoder

    @override
    def _compare_rows(self, backend: Backend, probes: Callable[[Backend], Probes]) -> Facts:
        with _few_threads(self.model):
            return super()._compare_rows(backend, probes)

    def _probes(self, backend: Backend) -> Probes:
        """Rows of a `PlainModel`.

        Raises:
            NoReferenceError: It does not write the model out, or a second copy, in fp32, may not fit into the
                memory.
        """
        stored = _stored_bytes(self.model)
        if 2 * stored > os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise NoReferenceError("too little memory for a second copy in fp32")
        tokens = sample_tokens(backend.tokenizer, min(SHORT, max_positions(self.model.card.config)), FEW)
        return PlainModel(self.model, attn_implementation="eager").probes(tokens)


def _stored_bytes(model: ResolvedModel) -> int:
    return sum(path.stat().st_size for path in model.files.folder().rglob("*.safetensors"))


@contextlib.contextmanager
def _few_threads(model: ResolvedModel) -> Iterator[None]:
    """Within this context, torch computes a small model in one thread.

    On two busy cores, several threads took five times as long: they waited for each other.
    """
    import torch

    threads = torch.get_num_threads()
    if _stored_bytes(model) < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
            _, difference = _in_fp32(load, model, tokens).compare(backend.forward, model.precision)
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
