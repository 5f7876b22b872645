"""Encoding with packed networks: batches in threads, each of them one output or several."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Int64
from pipeline.encoders.batching import TokenBatch

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


def ready_kernels(network: PackedNetwork) -> None:
    """Compile a network's kernels or load them from disk, and warn if they are slow on this CPU."""
    network.compile()
    if not machine.has_vnni():
        log.warning("int16 is not native on this CPU, which has no VNNI: slower than fp32 with openvino")
