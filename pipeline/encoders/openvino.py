"""The `openvino` backend: the same model, converted once, at the speed of the CPU; no torch after that."""

from __future__ import annotations

import collections
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.artifacts import Draft, Recipe, Store
from pipeline.encoders.batching import Batch, load_tokenizer
from pipeline.encoders.conversion import import_openvino
from pipeline.encoders.models import Model
from pipeline.errors import InputError
from pipeline.records import Float32, Int64

log = logging.getLogger(__name__)

SCHEMA = 1
TOKENS = 1024  # tokens per batch, padding included


class OpenVINOBackend:
    """A converted model on the CPU, several batches in flight.

    Args:
        model: What to load and how.
        store: Where the converted model is kept.
    """

    def __init__(self, model: Model, store: Store) -> None:
        folder = model.files.folder()
        recipe = conversion_recipe(model)
        converted, _ = store.make(recipe, lambda draft: (_convert(model, folder, draft), {}))
        core = import_openvino().Core()
        if model.precision == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            log.warning(
                "bf16 is not native on this CPU: it is emulated, slower than fp32 and no closer to it"
            )
        self.compiled = core.compile_model(
            str(converted.path("model.xml")),
            "CPU",
            {
                "PERFORMANCE_HINT": "THROUGHPUT",
                "INFERENCE_PRECISION_HINT": "bf16" if model.precision == "bf16" else "f32",
            },
        )
        jobs = int(self.compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        self.requests = [self.compiled.create_infer_request() for _ in range(jobs)]
        self.tokenizer = load_tokenizer(folder)
        self.pad_id = model.pad_id
        self.token_budget = TOKENS
        self.dimension = int(self.compiled.output(0).partial_shape[1].get_length())

    def forward(self, batches: Iterator[Batch]) -> Iterator[tuple[Int64, Float32]]:
        """See `pipeline.encoders.batching.Backend`."""
        free, busy = list(self.requests), collections.deque[tuple[Int64, Any]]()
        for batch in batches:
            if not free:
                yield self._finish(busy, free)
            request = free.pop()
            request.start_async({"input_ids": batch.ids, "attention_mask": batch.mask})
            busy.append((batch.rows, request))
        while busy:
            yield self._finish(busy, free)

    @staticmethod
    def _finish(busy: collections.deque[tuple[Int64, Any]], free: list[Any]) -> tuple[Int64, Float32]:
        """Wait for the oldest request and take its vectors.

        Requests are waited for rather than given a callback: OpenVINO's threads then never need Python's
        lock, which the thread that drops the model may hold while it waits for them.
        """
        rows, request = busy.popleft()
        request.wait()
        vectors = np.array(request.get_output_tensor(0).data, np.float32)
        free.append(request)
        return rows, vectors


def conversion_recipe(model: Model) -> Recipe:
    """What shapes the converted model."""
    from importlib.metadata import version

    plain = {
        "schema": SCHEMA,
        "model": model.identity,
        "pooling": model.pooling,
        "normalize": model.normalize,
        "trust_remote_code": model.trust_remote_code,
        "openvino": version("openvino"),
    }
    return Recipe("openvino", plain)


def _convert(model: Model, folder: Path, draft: Draft) -> dict[str, Any]:
    """Convert in a process of its own: what torch takes of memory is given back when it ends."""
    log.info("converting %s to OpenVINO, once", model.name)
    # OpenVINO derives the weights' file name from the description's, so both are written aside and moved
    with (
        draft.aside() as aside,
        draft.file("model.xml") as xml,
        draft.file("model.bin") as weights,
    ):
        wanted = {
            "pooling": model.pooling,
            "normalize": model.normalize,
            "pad_id": model.pad_id,
            "trust_remote_code": model.trust_remote_code,
        }
        arguments = [str(folder), str(aside / "model.xml"), json.dumps(wanted)]
        command = [sys.executable, "-m", "pipeline.encoders.conversion", *arguments]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            if "`trust_remote_code=True`" in done.stderr and not model.trust_remote_code:
                raise InputError(
                    f"model '{model.name}' runs only with Python files of its own",
                    fix="read them, then set model.trust_remote_code to true",
                )
            raise InputError(
                f"model '{model.name}' cannot be converted to OpenVINO: {reason}",
                allowed="encoder models that transformers loads and OpenVINO traces",
                fix="set model.backend to flag",
            )
        os.replace(aside / "model.xml", xml)
        os.replace(aside / "model.bin", weights)
    return {"name": model.name}
