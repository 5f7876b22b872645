"""The `openvino` backend: the same model, converted once, at the speed of the CPU; no torch after that."""

from __future__ import annotations

import collections
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.artifacts import Draft, Recipe, Store
from pipeline.encoders.batching import Batch, load_tokenizer
from pipeline.encoders.models import Model
from pipeline.records import Float32, Int64

log = logging.getLogger(__name__)

SCHEMA = 1
TOKENS = 2048  # tokens per batch, padding included


class OpenVINOBackend:
    """A converted model on the CPU, several batches in flight.

    Args:
        model: What to load and how.
        store: Where the converted model is kept.
    """

    def __init__(self, model: Model, store: Store) -> None:
        folder = model.files.folder()
        recipe = Recipe("openvino", _recipe(model))
        converted, _ = store.make(recipe, lambda draft: (_convert(model, folder, draft), {}))
        core = _openvino().Core()
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


def _openvino() -> Any:
    """OpenVINO, imported so that it reports nothing to anyone: it falls back to a telemetry stub."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def _recipe(model: Model) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "schema": SCHEMA,
        "model": model.identity,
        "pooling": model.pooling,
        "normalize": model.normalize,
        "openvino": version("openvino"),
    }


def _convert(model: Model, folder: Path, draft: Draft) -> dict[str, Any]:
    """Trace the torch model with pooling and normalization inside, and write it as OpenVINO IR."""
    openvino = _openvino()
    log.info("converting %s to OpenVINO, once", model.name)
    network, example = _torch_network(model, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = openvino.convert_model(network, example_input=example)
    # OpenVINO derives the weights' file name from the description's, so both are written aside and moved
    with (
        tempfile.TemporaryDirectory(dir=draft.folder.parent) as aside,
        draft.file("model.xml") as xml,
        draft.file("model.bin") as weights,
    ):
        openvino.save_model(converted, str(Path(aside) / "model.xml"), compress_to_fp16=False)
        os.replace(Path(aside) / "model.xml", xml)
        os.replace(Path(aside) / "model.bin", weights)
    return {"name": model.name}


def _torch_network(model: Model, folder: Path) -> tuple[Any, dict[str, Any]]:
    """A torch module from token ids and mask to vectors, and example inputs to trace it with."""
    import torch
    from transformers import AutoModel
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = AutoModel.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            if model.pooling == "cls":
                pooled = hidden[:, 0]
            elif model.pooling == "mean":
                mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
                pooled = (hidden * mask).sum(1) / mask.sum(1)
            else:
                last = attention_mask.sum(1) - 1
                pooled = hidden[torch.arange(hidden.shape[0]), last]
            return torch.nn.functional.normalize(pooled, dim=-1) if model.normalize else pooled

    ids = torch.full((2, 7), max(model.pad_id + 1, 5))
    mask = torch.ones_like(ids)
    ids[1, 5:], mask[1, 5:] = model.pad_id, 0
    return Network(), {"input_ids": ids, "attention_mask": mask}
