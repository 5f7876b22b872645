"""How does a torch model take one batch after the other? What the backends that run PyTorch share.

On a GPU every copy is asynchronous and goes through pinned memory, and a batch's vectors are fetched when
the next ones are on their way. (Transformers itself waits for the GPU once a batch, to see whether its mask
has padding.) A batch that does not fit into the device's memory is cut in two, and the token budget with
it; any other error is raised.
"""

from __future__ import annotations

import collections
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int64
from pipeline.encoders.batching import Batch
from pipeline.models.model import Model

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

log = logging.getLogger(__name__)

CPU_TOKENS, GPU_TOKENS = 2048, 65536  # tokens per batch, padding included
GPU_WIDTHS = 16  # a batch's width on a GPU is a multiple of this
LAG = 2  # batches under way before the first one's vectors are fetched


class TorchBackend(ABC):
    """A torch model behind `batching.Backend`; a subclass loads it and says what its vectors are.

    Args:
        model: What to load and how.

    Attributes:
        device: Where it computes.
        dtype: What it computes in.
        token_budget: Halved whenever a batch does not fit into the device's memory.
        width_multiple: Rounds widths up on a GPU, so that few shapes occur.
    """

    dimension: int
    tokenizer: Tokenizer

    def __init__(self, model: Model) -> None:
        import torch

        self.model = model
        self.device = torch.device(model.device)
        on_gpu = self.device.type == "cuda"
        if on_gpu and not torch.cuda.is_available():
            raise InputError(
                f"model.device: {model.device}, which auto takes where the driver shows a GPU, "
                f"but this PyTorch ({torch.__version__}) finds none",
                allowed="cpu, or a PyTorch built for CUDA",
                fix="set model.device to cpu",
            )
        self.dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[model.precision]
        self.pad_id = model.pad_id
        self.token_budget = GPU_TOKENS if on_gpu else CPU_TOKENS
        self.width_multiple, self.computes_padding = GPU_WIDTHS if on_gpu else 1, True

    @abstractmethod
    def vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The vectors [b, dimension] of a batch; both arguments are int64 [b, tokens] on the device."""

    def forward(self, batches: Iterator[Batch]) -> Iterator[tuple[Int64, Float32]]:
        """See `pipeline.encoders.batching.Backend`."""
        under_way = collections.deque[_Sent]()
        for batch in batches:
            under_way.extend(self._send(batch))
            while len(under_way) > LAG:
                yield under_way.popleft().fetch()
        while under_way:
            yield under_way.popleft().fetch()

    def _send(self, batch: Batch) -> list[_Sent]:
        """Put a batch's work on the device; in parts where its memory is too small."""
        import torch

        try:
            return [_Sent(batch.rows, self._compute(batch))]
        except torch.OutOfMemoryError:
            if len(batch.rows) == 1:
                raise InputError(
                    f"one text of {batch.ids.shape[1]} tokens does not fit into the memory of {self.device}",
                    fix="lower model.passage_max_length, or choose a smaller model.precision",
                ) from None
        # outside the handler, where nothing of the failed batch is held any more
        self.token_budget = max(min(self.token_budget, batch.ids.size) // 2, 1)
        log.warning(
            "out of memory on %s with %d tokens a batch: going on with %d",
            self.device, batch.ids.size, self.token_budget,
        )  # fmt: skip
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        half = (len(batch.rows) + 1) // 2
        parts = (slice(0, half), slice(half, None))
        return [
            sent
            for part in parts
            for sent in self._send(Batch(batch.rows[part], batch.ids[part], batch.mask[part]))
        ]

    def _compute(self, batch: Batch) -> torch.Tensor:
        """The vectors of a batch, float32 [b, dimension] on the device, of length 1 if that is wanted."""
        import torch

        with torch.inference_mode():
            vectors = self.vectors(*(self._on_device(array) for array in (batch.ids, batch.mask))).float()
            return torch.nn.functional.normalize(vectors, dim=-1) if self.model.normalize else vectors

    def _on_device(self, array: Int64) -> torch.Tensor:
        import torch

        tensor = torch.from_numpy(array)
        return (
            tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor
        )


class _Sent:
    """Vectors on their way from the device.

    Args:
        rows: int64 [b].
        vectors: float32 [b, dimension], on the device; perhaps not computed yet.
    """

    def __init__(self, rows: Int64, vectors: torch.Tensor) -> None:
        import torch

        self.rows, self.host = rows, vectors
        self.there: Any = None
        if vectors.is_cuda:
            self.host = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
            self.host.copy_(vectors, non_blocking=True)
            self.there = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.there.record(torch.cuda.current_stream(vectors.device))

    def fetch(self) -> tuple[Int64, Float32]:
        """Rows and vectors, once they are here."""
        if self.there is not None:
            self.there.synchronize()
        vectors: Float32 = self.host.numpy()
        return self.rows, vectors
