"""The `openvino` backend: the same model, converted once, at the speed of the CPU; no torch after that."""

from __future__ import annotations

import collections
import logging
import os
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.openvino_runtime import has_bfloat16, import_openvino
from pipeline.core.records import Float32, Int64
from pipeline.data.storage import open_texts
from pipeline.encoders.batching import Batch, Usage, batches, tokenize
from pipeline.encoders.openvino import quantization
from pipeline.encoders.preparation import from_torch, in_its_own_process, last_line
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)

SCHEMA = 3
INT8_SCHEMA = 4
TOKENS = 1024  # tokens per batch, padding included
TILE = 16  # rows of a matrix tile in the number formats below fp32: widths are multiples of it
DESCRIPTION, WEIGHTS, TOKENIZER = "model.xml", "model.bin", "tokenizer.json"


class OpenVINOBackend:
    """A converted model on the CPU, several batches in flight.

    Args:
        model: What to load and how.
        prepared: The folder that `prepare` made.
    """

    pad_id: int
    token_budget: int
    width_multiple: int
    computes_padding: bool

    def __init__(self, model: Model, prepared: Path) -> None:
        vars(self).update(_batch_shape(model))
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        core = import_openvino().Core()
        if model.precision == "bf16" and not has_bfloat16():
            log.warning(
                "bf16 is not native on this CPU: it is emulated, slower than fp32 and no closer to it"
            )
        self.compiled = core.compile_model(
            str(prepared / DESCRIPTION),
            "CPU",
            {
                "PERFORMANCE_HINT": "THROUGHPUT",
                "INFERENCE_PRECISION_HINT": "bf16" if model.precision == "bf16" else "f32",
                **_threads(),
            },
        )
        jobs = int(self.compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        self.requests = [self.compiled.create_infer_request() for _ in range(jobs)]
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


def prepare(model: Model, store: Store) -> Artifact:
    """The model that is run, with its tokenizer: converted, and for int8 calibrated, in `store`."""
    converted, _ = store.make(conversion_recipe(model), lambda draft: (_convert(model, draft), {}))
    if model.precision != "int8":
        return converted
    return store.make(int8_recipe(model), lambda draft: (_quantize(model, converted, draft), {}))[0]


def _quantize(model: Model, converted: Artifact, draft: Draft) -> dict[str, Any]:
    """Calibrate on passages of the corpus, prompted and cut as they will be encoded."""
    if model.corpus is None:
        raise ValueError("an int8 model needs the corpus it is calibrated on")
    log.info("calibrating %s in int8, once", model.name)
    before, after = model.prompts["passages"]
    texts = [before + text + after for text in quantization.sample(open_texts(model.corpus.path))]
    most, tokenizer = model.max_lengths["passages"], Tokenizer.from_file(str(converted.path(TOKENIZER)))
    tokens, arrays = tokenize(tokenizer, texts, most), dict[str, Any]()
    shape: Any = SimpleNamespace(**_batch_shape(model))  # of a backend that need not be loaded for it
    for number, batch in enumerate(batches(shape, [list(enumerate(tokens))], most, Usage())):
        arrays |= {f"ids-{number}": batch.ids, f"mask-{number}": batch.mask}
    with draft.aside() as aside:
        np.savez(aside / "batches.npz", **arrays)
        whole = str(converted.path(DESCRIPTION))
        arguments = [whole, str(aside / DESCRIPTION), str(aside / "batches.npz")]
        said = in_its_own_process("pipeline.encoders.openvino.quantization", arguments, aside / WEIGHTS)
        if said is not None:
            raise InputError(
                f"model '{model.name}' cannot be calibrated in int8: {last_line(said)}",
                fix="set model.precision to bf16",
            )
        shutil.copy(converted.path(TOKENIZER), aside)
        _keep(aside, draft)
    return {"name": model.name}


def _batch_shape(model: Model) -> dict[str, Any]:
    """What decides how texts are cut into batches, as `pipeline.encoders.batching.Backend` has it."""
    multiple = 1 if model.precision == "fp32" else TILE
    return {
        "pad_id": model.pad_id,
        "token_budget": TOKENS,
        "width_multiple": multiple,
        "computes_padding": True,
    }


def _threads() -> dict[str, Any]:
    """As many as OMP_NUM_THREADS says, where it is set: OpenVINO's own threads do not look there.

    Others then use the rest of the processors, and OpenVINO, which pins threads from the first one on, must
    not pin them: two processes would share one processor and leave the next idle.
    """
    wanted = machine.threads_allowed()
    return {"INFERENCE_NUM_THREADS": wanted, "ENABLE_CPU_PINNING": False} if wanted else {}


def conversion_recipe(model: Model) -> Recipe:
    """What shapes the converted model."""
    plain = {
        "schema": SCHEMA,
        "model": model.identity,
        "pooling": model.pooling,
        "normalize": model.normalize,
        "trust_remote_code": model.trust_remote_code,
        "openvino": metadata.version("openvino"),
    }
    return Recipe("openvino", plain)


def int8_recipe(model: Model) -> Recipe:
    """What shapes the int8 model: the converted one, and the passages it was calibrated on.

    Raises:
        InputError: NNCF is not installed.
    """
    plain = {
        "schema": INT8_SCHEMA,
        "converted": conversion_recipe(model).key,
        "corpus": model.corpus.identity if model.corpus else None,
        "prompt": list(model.prompts["passages"]),
        "max_length": model.max_lengths["passages"],
        "sample": [quantization.SAMPLE, quantization.SEED],
        "nncf": quantization.nncf_version(),
    }
    return Recipe("openvino", plain)


def network_recipe(model: Model) -> Recipe:
    """What shapes the model that is run."""
    return int8_recipe(model) if model.precision == "int8" else conversion_recipe(model)


def _convert(model: Model, draft: Draft) -> dict[str, Any]:
    """Trace the torch model."""
    log.info("converting %s to OpenVINO, once", model.name)
    with draft.aside() as aside:
        from_torch(
            model,
            model.files.folder(),
            "pipeline.encoders.openvino.conversion",
            aside / DESCRIPTION,
            made="converted to OpenVINO",
            allowed="encoder models that transformers loads and OpenVINO traces",
            fix="set model.backend to flag",
        )
        _keep(aside, draft)
    return {"name": model.name}


def _keep(aside: Path, draft: Draft) -> None:
    """Take a model from where it was written: OpenVINO derives the weights' name from the description's."""
    for name in (DESCRIPTION, WEIGHTS, TOKENIZER):
        with draft.file(name) as path:
            os.replace(aside / name, path)
