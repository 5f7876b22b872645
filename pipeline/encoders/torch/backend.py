"""The base classes of backends that run PyTorch, for texts or for pairs of texts.

On a GPU, copies are asynchronous and go through pinned memory, and a batch's vectors are fetched after the
next batches have been sent. A batch that does not fit into the device's memory is cut in two, and later ones
of its width are as small; any other error is raised.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar, cast

import numpy as np
from typing_extensions import override

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int32, Int64, RaggedRows
from pipeline.encoders.agreement import SHORT, Probes, sample_tokens
from pipeline.encoders.batching import RowArrays, TokenBatch
from pipeline.encoders.torch.attention import MaskReduction
from pipeline.encoders.torch.checks import architecture, observe, tokens_embedded
from pipeline.encoders.torch.devices import free_memory, is_out_of_memory
from pipeline.models.model import ResolvedBase, ResolvedModel

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

log = logging.getLogger(__name__)

CPU_TOKENS, GPU_TOKENS = 2048, 65536  # tokens per batch, padding included
GPU_WIDTHS = 16  # a batch's width on a GPU is a multiple of this, so that few shapes occur
LAG = 2  # batches sent to the device before the first one's vectors are fetched


DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""The name that torch has for each precision."""
Computed = TypeVar("Computed", bound=RowArrays)


class TorchRunner(ABC, Generic[Computed]):
    """Computes batches on a device; a subclass says what is computed of a batch."""

    padded_right: ClassVar[bool] = True  # the side of padding in what the network is given
    length_setting: ClassVar[str] = "model.passage_max_length"
    model: ResolvedBase

    def __init__(self, model: ResolvedBase, network: torch.nn.Module) -> None:
        """Take a loaded network to the device, its parameters in the precision, observed, its masks reduced.

        Buffers stay as they are. The frequencies of rotary positions, in bf16, would turn the 5,000th token
        by 2 radians too far or too little; libraries that load a model in bf16 keep these in fp32, too.
        """
        import torch

        self.name, self.pad_id, self.model = model.name, model.pad_id, model
        self.device, self.dtype = torch.device(model.device), getattr(torch, DTYPES[model.precision])
        self.embedded = tokens_embedded(network)
        network.to(self.device)
        for parameter in network.parameters():
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(self.dtype)
        self.figures, self.reads_padding = observe(model, network.eval())
        self.masks = MaskReduction()
        for module in network.modules():
            # a model's own Python files may need a mask
            if getattr(module, "base_model", None) is module and architecture(module):
                self.masks.attach(module, self.padded_right)
        on_gpu = self.device.type == "cuda"
        self.token_budget = GPU_TOKENS if on_gpu else CPU_TOKENS
        self.failed: dict[int, int] = {}  # by width of batches that did not fit, half of their tokens
        self.width_multiple = GPU_WIDTHS if on_gpu else 1
        self.computes_padding = True

    @abstractmethod
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """Some numbers of a batch, floats on the device; called where torch keeps no gradients."""

    def finish(self, count: int, computed: Float32) -> Computed:
        """The rows of a batch's `count` texts, given what `compute` returned for it."""
        return cast("Computed", computed)

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Computed]]:
        """For each batch its `rows` and what is made of them, in their order."""
        under_way = collections.deque[_Sent]()
        for batch in itertools.chain(batches, [None]):
            under_way.extend(self._send(batch) if batch else ())
            while len(under_way) > (LAG if batch else 0):
                rows, computed, copied = under_way.popleft()
                if copied:
                    copied.synchronize()
                yield rows, self.finish(len(rows), computed.cpu().numpy())

    def _send(self, batch: TokenBatch) -> list[_Sent]:
        """Start a batch on the device; in halves if it is too large, by those that did not fit before.

        Half of their tokens may fit, at their width and at larger ones. In a narrower batch a token may take
        less memory, as its row of attention is shorter: at half the width, twice as many are tried.
        """
        import torch

        texts, width = batch.ids.shape
        halves = [half << max(failed // width, 1).bit_length() - 1 for failed, half in self.failed.items()]
        if texts == 1 or batch.ids.size <= min([self.token_budget, *halves]):
            self.masks.padded = not batch.mask.all()
            try:
                with torch.inference_mode():
                    computed = self.compute(batch).float()
                return [_fetch(batch.rows, computed) if computed.is_cuda else _Sent(batch.rows, computed)]
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # outside the handler, because the exception holds references to the failed batch's tensors
            self._note_failed(texts, width)
        half = (len(batch.rows) + 1) // 2
        return [*self._send(batch.part(slice(half))), *self._send(batch.part(slice(half, None)))]

    def _note_failed(self, texts: int, width: int) -> None:
        """Note that a batch did not fit, and free what it took; refuse one text that does not fit."""
        if texts == 1:
            raise InputError(
                f"one text of {width} tokens does not fit into the memory of {self.device}",
                fix=f"lower {self.length_setting}, or choose a smaller {self.model.section}.precision",
            )
        self.failed[width] = texts * width // 2
        log.warning(
            "out of memory on %s with %d tokens a batch: going on with %d",
            self.device, texts * width, self.failed[width],
        )  # fmt: skip
        free_memory(self.device)

    def on_device(self, array: Int64 | Int32) -> torch.Tensor:
        """A copy of an array on the device, which a GPU may still be making."""
        import torch

        tensor = torch.from_numpy(array)
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)


class _Sent(NamedTuple):
    """What is computed of a batch, which a GPU may still be doing."""

    rows: Int64  # [b]
    computed: torch.Tensor  # float32
    copied: torch.cuda.Event | None = None  # when a GPU has copied it to this machine's memory


def _fetch(rows: Int64, computed: torch.Tensor) -> _Sent:
    """Start a copy from a GPU, which runs beside the next batches."""
    import torch

    host = torch.empty(computed.shape, dtype=computed.dtype, pin_memory=True)
    host.copy_(computed, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(computed.device))
    return _Sent(rows, host, copied)


class DeviceBatch(NamedTuple):
    """A batch, and what is on the device of it."""

    batch: TokenBatch
    ids: torch.Tensor  # int64 [b, tokens]
    mask: torch.Tensor  # int64 [b, tokens], 1 at a token and 0 at padding


class TorchBackend(TorchRunner[RowArrays]):
    """A torch model with the interface `batching.Backend`; a subclass loads it and computes rows.

    That is vectors; or a subclass packs its rows into one tensor, as a batch is fetched in one copy, and
    `finish` unpacks them.
    """

    tokenizer: Tokenizer
    model: ResolvedModel

    @abstractmethod
    def rows(self, texts: DeviceBatch) -> torch.Tensor:
        """The vectors [b, dimension] or packed rows of a batch."""

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        if self.model.output == "dense" and not batch.mask.any(axis=1).all():
            raise _no_tokens(self.name)
        return self.rows(DeviceBatch(batch, self.on_device(batch.ids), self.on_device(batch.mask)))


def _no_tokens(name: str) -> InputError:
    return InputError(
        f"a text has no tokens for model '{name}', and so no vector: it is empty, or of characters that the "
        "tokenizer drops",
        fix="leave it out of the collection",
    )


Load = Callable[[ResolvedModel, Path | None], TorchBackend]
"""The function `load` of a backend."""


def check_precision(backend: TorchBackend, load: Load) -> None:
    """Compare vectors in fp16 and bf16 with those in fp32; let a GPU choose kernels.

    Raises:
        InputError: The vectors are too far from those in fp32.
    """
    model = backend.model
    with machine.preparing():
        tokens = sample_tokens(backend.tokenizer, max(model.max_lengths.values()), SHORT)
        if model.precision == "fp32":
            Probes.by(backend, tokens)
            return
        in_fp32 = _in_fp32(load, model, tokens)
        free_memory(backend.device)
        if difference := in_fp32.compare(backend.forward, model.precision).problem:
            wider = "bf16 or fp32" if model.precision == "fp16" else "fp32"
            raise InputError(
                f"model '{model.name}' cannot be computed in {model.precision}: {difference}",
                fix=f"set model.precision to {wider}",
            )


def _in_fp32(load: Load, model: ResolvedModel, tokens: Sequence[Int32]) -> Probes:
    """Rows of the same texts in fp32; on the CPU if the device has no room for both."""
    if model.device != "cpu":
        with contextlib.suppress(InputError):
            return Probes.by(load(replace(model, precision="fp32"), None), tokens)
    return Probes.by(load(replace(model, precision="fp32", device="cpu"), None), tokens)


def packed_tokens(vectors: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Token vectors packed as float32 [b, n, dimension + 1]; the last number is 1 where one is kept.

    `vectors` are [b, n, dimension], `kept` is [b, n].
    """
    import torch

    return torch.cat([vectors.float(), kept[..., None].float()], dim=-1)


def unpacked_tokens(tokens: Float32) -> RaggedRows:
    """The token vectors of each text that are kept, of what `packed_tokens` returns."""
    is_token = tokens[..., -1] > 0
    return RaggedRows(np.cumsum(is_token.sum(axis=1)), (tokens[is_token][:, :-1],))
