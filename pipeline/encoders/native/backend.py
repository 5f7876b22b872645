"""The `native` backend: a BERT computed by this project's own code, in int16; no torch once it is packed."""

from __future__ import annotations

import collections
import logging
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int64
from pipeline.encoders.batching import Batch
from pipeline.encoders.preparation import from_torch
from pipeline.encoders.reference import Expected, agrees
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)

SCHEMA = 2
TOKENS = 1024  # tokens per batch
WEIGHTS, TOKENIZER = "weights.npz", "tokenizer.json"


class NativeBackend:
    """A packed model, one batch per thread.

    Args:
        model: What to load and how.
        prepared: The folder that `prepare` made.
    """

    def __init__(self, model: Model, prepared: Path) -> None:
        from tokenizers import Tokenizer

        from pipeline.encoders.native import kernels as int16
        from pipeline.encoders.native import network as packed

        int16.compile_all()
        if not int16.NATIVE:
            log.warning("int16 is not native on this CPU, which has no VNNI: slower than fp32 with openvino")
        self.name, self.pad_id = model.name, model.pad_id
        self.token_budget, self.width_multiple, self.computes_padding = TOKENS, 1, False
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.network = packed.Packed(prepared / WEIGHTS, model.pooling, model.normalize)
        self.dimension = self.network.dimension
        self.threads = machine.threads_allowed() or machine.cores()

    def forward(self, batches: Iterator[Batch]) -> Iterator[tuple[Int64, Float32]]:
        """See `pipeline.encoders.batching.Backend`."""
        busy = collections.deque[tuple[Int64, Future[Float32]]]()
        with ThreadPoolExecutor(self.threads) as threads:
            for batch in batches:
                if batch.ids.max() >= self.network.vocabulary:
                    raise InputError(
                        f"the tokenizer of model '{self.name}' gives token {batch.ids.max()}, "
                        f"and its weights hold {self.network.vocabulary}",
                        fix="restore the model's files",
                    )
                if batch.ids.shape[1] > self.network.longest:  # config.json did not say
                    raise InputError(
                        f"a text has {batch.ids.shape[1]} tokens, and model '{self.name}' has positions for "
                        f"{self.network.longest}",
                        fix="lower model.passage_max_length and model.query_max_length",
                    )
                if len(busy) > self.threads:
                    rows, vectors = busy.popleft()
                    yield rows, vectors.result()
                busy.append((batch.rows, threads.submit(self.network.vectors, batch.ids, batch.mask)))
            for rows, vectors in busy:
                yield rows, vectors.result()


def packed_recipe(model: Model) -> Recipe:
    """What shapes the packed model, and what is computed with it."""
    plain = {
        "schema": SCHEMA,
        "model": model.identity,
        "pooling": model.pooling,
        "normalize": model.normalize,
        "trust_remote_code": model.trust_remote_code,
        "numba": metadata.version("numba"),
    }
    return Recipe("native", plain)


def prepare(model: Model, store: Store) -> Artifact:
    """The packed model and its tokenizer, in `store`."""
    return store.make(packed_recipe(model), lambda draft: (_pack(model, draft), {}))[0]


def _pack(model: Model, draft: Draft) -> dict[str, Any]:
    from pipeline.encoders.native.kernels import compile_all
    from pipeline.encoders.native.network import Packed
    from pipeline.encoders.native.packing import EXPECTED

    log.info("packing %s in int16, once", model.name)
    allowed = "BERT, RoBERTa and XLM-RoBERTa with GELU, wide a multiple of 64, their heads one of 32"
    fix = "set model.backend to openvino"
    with draft.aside() as aside, ThreadPoolExecutor(1) as thread:
        compiling = thread.submit(compile_all)  # while another process packs
        from_torch(
            model,
            model.files.folder(),
            "pipeline.encoders.native.packing",
            aside / WEIGHTS,
            made="packed in int16",
            allowed=allowed,
            fix=fix,
        )
        compiling.result()
        with np.load(aside / EXPECTED, allow_pickle=False) as stored:
            wanted = Expected(**stored)
        if not agrees(Packed(aside / WEIGHTS, model.pooling, model.normalize).vectors, wanted):
            raise InputError(f"the vectors of model '{model.name}' are others in int16", fix=fix)
        for name in (WEIGHTS, TOKENIZER):
            with draft.file(name) as path:
                os.replace(aside / name, path)
    return {"name": model.name}
