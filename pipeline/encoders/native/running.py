"""Encoding with packed networks: batches in threads, each of them one output or several."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Int64
from pipeline.encoders.batching import TokenBatch
from pipeline.models.model import Model

if TYPE_CHECKING:
    from pipeline.encoders.native.packed_model import PackedNetwork

log = logging.getLogger(__name__)

TOKENS = 512  # tokens per batch: few enough for their states to stay in the processor's cache


class NativeRunner:
    """Computes batches of a packed network: every core computes a batch of its own in one thread."""

    length_settings = "model.passage_max_length and model.query_max_length"  # for messages

    def __init__(self, name: str, pad_id: int, network: PackedNetwork) -> None:
        ready_kernels(network)
        self.name, self.pad_id, self.network = name, pad_id, network
        self.token_budget, self.width_multiple, self.computes_padding = TOKENS, 1, False
        self.threads = machine.threads_allowed() or machine.cores()

    def compute(self, batch: TokenBatch) -> Any:
        """What is made of a batch, as `pipeline.encoders.batching.Backend` says; called in a thread."""
        raise NotImplementedError

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Any]]:
        """See `pipeline.encoders.batching.Backend`."""
        busy = collections.deque[tuple[Int64, Future[Any]]]()
        with ThreadPoolExecutor(self.threads) as threads:
            for batch in batches:
                self._check(batch)
                if len(busy) > self.threads:
                    rows, computed = busy.popleft()
                    yield rows, computed.result()
                busy.append((batch.rows, threads.submit(self.compute, batch)))
            for rows, computed in busy:
                yield rows, computed.result()

    def _check(self, batch: TokenBatch) -> None:
        """Refuse tokens and positions that the weights have no embedding of: the kernels check no bounds."""
        if batch.ids.max() >= self.network.vocabulary:
            raise InputError(
                f"the tokenizer of model '{self.name}' gives token {batch.ids.max()}, "
                f"and its weights hold {self.network.vocabulary}",
                fix="restore the model's files",
            )
        if batch.ids.shape[1] > self.network.longest:  # config.json may not declare it
            raise InputError(
                f"a text has {batch.ids.shape[1]} tokens, and model '{self.name}' has positions for "
                f"{self.network.longest}",
                fix=f"lower {self.length_settings}",
            )


class NativeSeveralOutputs(NativeRunner):
    """A packed BGE-M3 that makes a list of several outputs of a batch, each with the bits it has alone.

    Args:
        backend: The backend of one output, which goes on as before.
        own: Its model.
        others: The same model, resolved for other outputs.
    """

    def __init__(self, backend: Any, own: Model, others: Sequence[Model]) -> None:
        from pipeline.encoders.native import m3
        from pipeline.encoders.native.heads import compile_projection

        compile_projection()
        super().__init__(own.name, backend.pad_id, backend.network)
        self.tokenizer = backend.tokenizer
        known = getattr(backend.network, "head", m3.FirstTokenHead())
        self.heads = [known, *map(m3.read_head_of, others)]

    def compute(self, batch: TokenBatch) -> list[Any]:
        """What each head makes of the batch's last hidden states."""
        hidden, texts = self.network.hidden(batch.ids, batch.mask, only_first=False)
        ids = self.network.kept_ids(batch.ids, batch.mask)
        return [head.rows(hidden, texts, ids) for head in self.heads]


def ready_kernels(network: PackedNetwork) -> None:
    """Compile a network's kernels or load them from disk, and warn if they are slow on this CPU."""
    network.compile()
    if not network.in_fp32 and not machine.has_vnni():
        log.warning("int16 is not native on this CPU, which has no VNNI: slower than fp32 with openvino")
