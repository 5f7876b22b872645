"""The base classes of backends that run PyTorch, for texts or for pairs of texts.

On a GPU, copies are asynchronous and go through pinned memory, and a batch's vectors are fetched after the
next batches have been sent, so that the GPU does not wait for the CPU. (Transformers itself waits for the GPU
once a batch, to see whether its mask has padding.) A batch that does not fit into the device's memory is cut
in two, and the token budget is halved; any other error is raised.
"""

from __future__ import annotations

import collections
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from typing_extensions import override

from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int64, Ragged
from pipeline.encoders.batching import Rows, TokenBatch, refuse_unknown_tokens
from pipeline.models.model import ResolvedBase, ResolvedModel

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

log = logging.getLogger(__name__)

CPU_TOKENS, GPU_TOKENS = 2048, 65536  # tokens per batch, padding included
GPU_WIDTHS = 16  # a batch's width on a GPU is a multiple of this, so that few shapes occur
LAG = 2  # batches sent to the device before the first one's vectors are fetched


Computed = TypeVar("Computed", bound=Rows)
Network = TypeVar("Network", bound="torch.nn.Module")


class TorchRunner(ABC, Generic[Computed]):
    """Computes batches on a device; a subclass says what is computed of a batch."""

    section: ClassVar[str] = "model"  # of the config, for messages
    length_setting: ClassVar[str] = "model.passage_max_length"

    def __init__(self, model: ResolvedBase) -> None:
        import torch

        self.device = torch.device(model.device)
        on_gpu = self.device.type == "cuda"
        if on_gpu and not torch.cuda.is_available():
            raise InputError(
                f"{self.section}.device: {model.device}, but this PyTorch ({torch.__version__}) "
                "finds no GPU; auto chooses one if the driver lists it",
                allowed="cpu, or a PyTorch built for CUDA",
                fix=f"set {self.section}.device to cpu",
            )
        self.dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[model.precision]
        self.name, self.pad_id = model.name, model.pad_id
        self.embedded: int | None = None  # tokens that the network has embeddings of
        self.token_budget = GPU_TOKENS if on_gpu else CPU_TOKENS
        self.width_multiple = GPU_WIDTHS if on_gpu else 1
        self.computes_padding = True

    def place(self, network: Network) -> Network:
        """A loaded network, on the device and in the precision."""
        self.embedded = tokens_embedded(network)
        return network.to(device=self.device, dtype=self.dtype).eval()

    @abstractmethod
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """Some numbers of a batch, float32 on the device."""

    @abstractmethod
    def finish(self, count: int, computed: Float32) -> Computed:
        """The rows of a batch's `count` texts, given what `compute` returned for it."""

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Computed]]:
        """For each batch its `rows` and what is made of them, in their order."""
        under_way = collections.deque[_Sent]()
        for batch in batches:
            if (
                self.embedded is not None
            ):  # a GPU would not say which token it is, and stop for all that follows
                refuse_unknown_tokens(self.name, int(batch.ids.max()), self.embedded)
            under_way.extend(self._send(batch))
            while len(under_way) > LAG:
                yield self._fetch(under_way.popleft())
        while under_way:
            yield self._fetch(under_way.popleft())

    def _fetch(self, sent: _Sent) -> tuple[Int64, Computed]:
        return sent.rows, self.finish(len(sent.rows), sent.fetch())

    def _send(self, batch: TokenBatch) -> list[_Sent]:
        """Start a batch on the device; in parts if its memory is too small."""
        import torch

        try:
            return [_Sent(batch.rows, self.compute(batch))]
        except torch.OutOfMemoryError:
            if len(batch.rows) == 1:
                raise InputError(
                    f"one text of {batch.ids.shape[1]} tokens does not fit into the memory of {self.device}",
                    fix=f"lower {self.length_setting}, or choose a smaller {self.section}.precision",
                ) from None
        # outside the handler, because the exception holds references to the failed batch's tensors
        self.token_budget = max(min(self.token_budget, batch.ids.size) // 2, 1)
        log.warning(
            "out of memory on %s with %d tokens a batch: going on with %d",
            self.device, batch.ids.size, self.token_budget,
        )  # fmt: skip
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        half = (len(batch.rows) + 1) // 2
        return [*self._send(batch.part(slice(half))), *self._send(batch.part(slice(half, None)))]

    def on_device(self, array: Int64) -> torch.Tensor:
        """A copy of an array on the device, which a GPU may still be making."""
        import torch

        tensor = torch.from_numpy(array)
        if self.device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)


class TorchBackend(TorchRunner[Rows]):
    """A torch model with the interface `batching.Backend`; a subclass loads it and computes rows.

    That is vectors; or a subclass packs its rows into one tensor, as a batch is fetched in one copy, and
    `finish` unpacks them.
    """

    tokenizer: Tokenizer

    def __init__(self, model: ResolvedModel) -> None:
        super().__init__(model)
        self.model = model

    @abstractmethod
    def rows(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The vectors [b, dimension] or packed rows of a batch, int64 [b, tokens] with its mask."""

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            return self.rows(self.on_device(batch.ids), self.on_device(batch.mask)).float()

    @override
    def finish(self, count: int, computed: Float32) -> Rows:
        return computed


def tokens_embedded(network: torch.nn.Module) -> int | None:
    """The number of tokens that a network has embeddings of; None if it does not say."""
    bodies: list[Any] = [module for module in network.modules() if hasattr(module, "get_input_embeddings")]
    return getattr(bodies[0].get_input_embeddings(), "num_embeddings", None) if bodies else None


def packed_tokens(vectors: torch.Tensor, kept: torch.Tensor, normalize: bool) -> torch.Tensor:
    """Token vectors packed as float32 [b, n, dimension + 1]; the last number is 1 where one is kept.

    `vectors` are [b, n, dimension], `kept` is [b, n]; with `normalize` they are scaled to length 1.
    """
    import torch

    vectors = vectors.float()
    if normalize:
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    return torch.cat([vectors, kept[..., None].float()], dim=-1)


def unpacked_tokens(tokens: Float32) -> Ragged:
    """The token vectors of each text that are kept, of what `packed_tokens` returns."""
    kept = tokens[..., -1] > 0
    return Ragged(np.cumsum(kept.sum(axis=1)), (tokens[kept][:, :-1],))


class _Sent:
    """A batch's rows int64 [b] and a float32 array, which a GPU may still be computing."""

    def __init__(self, rows: Int64, computed: torch.Tensor) -> None:
        import torch

        self.rows, self.host = rows, computed
        self.copied: torch.cuda.Event | None = None
        if computed.is_cuda:
            # the copy runs beside the next batches; `fetch` waits for its event
            self.host = torch.empty(computed.shape, dtype=computed.dtype, pin_memory=True)
            self.host.copy_(computed, non_blocking=True)
            self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.copied.record(torch.cuda.current_stream(computed.device))

    def fetch(self) -> Float32:
        """The array, after waiting for its copy."""
        if self.copied is not None:
            self.copied.synchronize()
        numbers: Float32 = self.host.numpy()
        return numbers
