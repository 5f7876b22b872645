"""The `openvino` backend: a model converted once from torch, then run by OpenVINO on the CPU.

A model is traced together with its pooling, and made int8 by NNCF, in a process of its own:

python -m pipeline.encoders.openvino < TASK
python -m pipeline.encoders.openvino MODEL.xml OUT.xml BATCHES.npz

The batches are arrays `ids-N` and `mask-N`, int64 [b, tokens].
"""

from __future__ import annotations

import collections
import json
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.installation import import_openvino, require
from pipeline.core.records import Float32, Int32, Int64, JsonObject, Texts, take_texts
from pipeline.core.subprocesses import last_line, run_in_subprocess
from pipeline.data.collection_files import open_texts
from pipeline.encoders import agreement, conversion
from pipeline.encoders.agreement import PROBES, Forward, Watch
from pipeline.encoders.batching import TokenBatch, Usage, Window, batches, tokenize
from pipeline.encoders.conversion import Conversion
from pipeline.encoders.torch.attention import limit_last_layer_to_first_token
from pipeline.encoders.torch.loading import load_network
from pipeline.models.card import max_positions
from pipeline.models.model import ResolvedBase, ResolvedModel
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    import openvino
    import torch
    from tokenizers import Tokenizer

log = logging.getLogger(__name__)

CONVERTED = "encoder models that transformers loads and OpenVINO traces"
SCHEMA = 7
INT8_SCHEMA = 8
TOKENS = 1024  # tokens of a batch, padding included
TILE = 16  # rows of a matrix tile in bf16 and int8: batch widths are multiples of it
FILES = DESCRIPTION, WEIGHTS, TOKENIZER, CHECKS = (
    "model.xml", "model.bin", conversion.TOKENIZER, agreement.CHECKS
)  # fmt: skip
SAMPLE = 256  # passages that an int8 model is calibrated on
SEED = 0  # for drawing them
REFERENCE = ("reference.xml", "reference.bin")  # beside an int8 model: the one that it was made of


ENCODERS = (
    "albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "eurobert",
    "gte", "modernbert", "mpnet", "nomic_bert", "roberta", "xlm-roberta",
)  # fmt: skip
"""The values of `model_type` in `config.json` of the networks that tests convert."""


def is_traced(model: ResolvedBase) -> bool:
    """Whether a model's network is known to convert: an encoder of transformers with its usual positions."""
    config = model.card.config
    scaled = config.get("rope_scaling") or config.get("rope_parameters") or {}
    own = model.trust_remote_code and model.card.own_code
    usual = not isinstance(scaled, dict) or scaled.get("rope_type", "default") == "default"
    return config.get("model_type") in ENCODERS and not own and usual


class OpenVINOConversion(Conversion):
    """A model converted once from torch."""

    @override
    def suits(self, model: ResolvedModel) -> bool:
        """Whether a model's network is one of `ENCODERS`: not all others can be traced."""
        return is_traced(model)

    @override
    def watch(self, model: ResolvedModel, folder: Path, tokenizer: Tokenizer) -> Watch | None:
        """Compares with the converted model in fp32, which was compared with torch."""
        if model.precision == "fp32":
            return None
        description = REFERENCE[0] if model.precision == "int8" else DESCRIPTION
        computed = _in_fp32(str(folder / description))

        def vector(ids: Int32) -> Float32:
            tokens = ids.astype(np.int64)[None]
            return np.array(computed(tokens, np.ones_like(tokens))[0])

        return Watch(model.name, vector, model.precision, self.fix(model), tokenizer)

    @override
    def fix(self, model: ResolvedModel) -> str:
        wider = {"int8": "bf16", "bf16": "fp32"}.get(model.precision)
        return f"set model.precision to {wider}" if wider else "set model.backend to flag"

    @override
    def recipe(self, model: ResolvedModel) -> Recipe:
        return _int8_recipe(model) if model.precision == "int8" else _recipe(model)

    @override
    def make(self, model: ResolvedModel, store: Store) -> Artifact:
        """The converted model, for int8 calibrated, and its tokenizer."""
        files = (*FILES, PROBES)
        converted = store.make(
            _recipe(model), lambda draft: convert_once(model, draft, __name__, CONVERTED, files)
        )
        if model.precision != "int8":
            return converted
        return store.make(_int8_recipe(model), lambda draft: _quantize(model, converted, draft))


class OpenVINOBatches:
    """How texts are cut into batches for a model, a `batching.BatchShape`."""

    token_budget, computes_padding, reads_padding = TOKENS, True, False
    embedded: int | None = None

    def __init__(self, model: ResolvedBase) -> None:
        self.name, self.pad_id = model.name, model.pad_id
        self.width_multiple = 1 if model.precision == "fp32" else TILE


class OpenVINORunner(OpenVINOBatches):
    """Computes batches of a converted network, in the folder `prepared`, on the CPU, several in flight."""

    def __init__(self, model: ResolvedBase, prepared: Path) -> None:
        super().__init__(model)
        checks = json.loads((prepared / CHECKS).read_text(encoding="utf-8"))
        self.embedded = checks["tokens embedded"]
        core = import_openvino().Core()
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

    def inputs(self, batch: TokenBatch) -> dict[str, Int64]:
        """The network's inputs for a batch."""
        return {"input_ids": batch.ids, "attention_mask": batch.mask}

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Float32]]:
        """For each batch its `rows` and what the network makes of them, in their order."""
        free = list(self.requests)
        busy: collections.deque[tuple[Int64, openvino.InferRequest]] = collections.deque()
        for batch in batches:
            if not free:
                yield self._finish(busy, free)
            request = free.pop()
            request.start_async(self.inputs(batch))
            busy.append((batch.rows, request))
        while busy:
            yield self._finish(busy, free)

    @staticmethod
    def _finish(
        busy: collections.deque[tuple[Int64, openvino.InferRequest]], free: list[openvino.InferRequest]
    ) -> tuple[Int64, Float32]:
        """Wait for the oldest request and copy its vectors.

        A callback instead would run in OpenVINO's threads, which then need Python's global lock. The thread
        that deletes the model may hold that lock while it waits for those threads: a deadlock.
        """
        rows, request = busy.popleft()
        request.wait()
        vectors = np.array(request.get_output_tensor(0).data, np.float32)
        free.append(request)
        return rows, vectors


class OpenVINOBackend(OpenVINORunner):
    """A converted model for texts."""

    def __init__(self, model: ResolvedModel, prepared: Path) -> None:
        from tokenizers import Tokenizer

        super().__init__(model, prepared)
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.dimension = int(self.compiled.output(0).partial_shape[1].get_length())


def _in_fp32(network: str | openvino.Model) -> Callable[[Int64, Int64], Float32]:
    """What a converted network gives in fp32 for token ids and their mask, int64 [texts, tokens] each."""
    settings = {"INFERENCE_PRECISION_HINT": "f32", **_threads()}
    compiled = import_openvino().Core().compile_model(network, "CPU", settings)
    return lambda ids, mask: compiled({"input_ids": ids, "attention_mask": mask})[0]


def _quantize(model: ResolvedModel, converted: Artifact, draft: Draft) -> JsonObject:
    """Calibrate on passages of the corpus, with the prompt and length they are encoded with."""
    from tokenizers import Tokenizer

    log.info("calibrating %s in int8, once", model.name)
    assert model.corpus is not None
    tokenizer = Tokenizer.from_file(str(converted.folder / TOKENIZER))
    before, after = model.prompts["passages"]
    texts = [before + text + after for text in calibration_texts(open_texts(model.corpus.path))]
    most = model.max_lengths["passages"]
    tokens, _ = tokenize(tokenizer, texts, most)
    windows = [Window(list(enumerate(tokens)), Usage(), True)]
    arrays: dict[str, Int64] = {}
    for number, batch in enumerate(batches(OpenVINOBatches(model), windows, most)):
        arrays |= {f"ids-{number}": batch.ids, f"mask-{number}": batch.mask}
    with draft.scratch() as aside:
        np.savez(aside / "batches.npz", allow_pickle=False, **arrays)
        paths = converted.folder / DESCRIPTION, aside / DESCRIPTION, aside / "batches.npz"
        error = run_in_subprocess(__name__, [*map(str, paths)], aside / WEIGHTS)
        if error is not None:
            raise InputError(
                f"model '{model.name}' cannot be calibrated in int8: {last_line(error)}",
                fix="set model.precision to bf16",
            )
        for name in (TOKENIZER, PROBES, CHECKS):
            shutil.copy(converted.folder / name, aside)
        for name, copied in zip((DESCRIPTION, WEIGHTS), REFERENCE, strict=True):
            shutil.copy(converted.folder / name, aside / copied)
        conversion.keep_files(aside, draft, (*FILES, PROBES, *REFERENCE))
    return {"name": model.name}


def _threads() -> dict[str, int | bool]:
    """Settings for as many threads as OMP_NUM_THREADS says, if it is set: OpenVINO does not read it.

    Other processes then use the other processors, so threads must not be pinned: OpenVINO pins them from
    processor 0 on in every process, which would share some processors and leave others idle.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        return {}
    return {"INFERENCE_NUM_THREADS": machine.threads(), "ENABLE_CPU_PINNING": False}


def _recipe(model: ResolvedModel) -> Recipe:
    require("openvino", "openvino", "model.backend: openvino")
    return conversion.conversion_recipe(model, "openvino", SCHEMA, "openvino")


def _int8_recipe(model: ResolvedModel) -> Recipe:
    """Everything that shapes the int8 model: the converted one, and the passages it is calibrated on."""
    require("nncf", "int8", "model.precision: int8")  # first: its extra installs OpenVINO too
    plain = {
        "schema": INT8_SCHEMA,
        "converted": _recipe(model).key,
        "corpus": model.corpus.identity if model.corpus else None,
        "prompt": list(model.prompts["passages"]),
        "max_length": model.max_lengths["passages"],
        "sample": [SAMPLE, SEED],
        "nncf": metadata.version("nncf"),
    }
    return Recipe("openvino", plain)


def convert_once(
    model: ResolvedBase, draft: Draft, module: str, allowed: str, files: Sequence[str], section: str = "model"
) -> JsonObject:
    """Write the files that a `module` makes of a model; see `conversion.convert`."""
    log.info("converting %s to OpenVINO, once", model.name)
    fix = f"set {section}.backend to flag"
    return conversion.convert(model, draft, module, files, "converted to OpenVINO", allowed, fix)


def calibration_texts(passages: Texts) -> list[str]:
    """The passages a model is calibrated on: drawn with a fixed seed, in the corpus's order."""
    count = min(SAMPLE, len(passages))
    rows: Int64 = np.sort(np.random.default_rng(SEED).choice(len(passages), count, replace=False))
    texts: list[str] = take_texts(passages.texts, rows).to_pylist()
    return texts


def _convert(model: ResolvedModel, target: Path) -> None:
    """Write a model as OpenVINO IR.

    `target` is the `.xml` to write. The weights go beside it as `.bin`, in fp32, and rows of the model's
    library as `PROBES`.
    """
    body = load_network(model, target=target)
    probes = conversion.library_rows(model, max_positions(body.config.to_dict()))
    if model.pooling == "cls":
        limit_last_layer_to_first_token(body)
    converted = _traced(body, model)
    if probes.compare(_forward(converted), "fp32").problem:
        # OpenVINO's attention operation gives NaN if a local window holds nothing but padding
        body.set_attn_implementation("eager")
        converted = _traced(body, model)
        if differs := probes.compare(_forward(converted), "fp32").problem:
            raise ValueError(f"the traced model gives other vectors than its library: {differs}")
    probes.write(target.with_name(PROBES))
    import_openvino().save_model(converted, str(target), compress_to_fp16=False)


def _traced(body: Any, model: ResolvedModel) -> openvino.Model:
    """The OpenVINO model of a network of transformers with its pooling.

    The example batch has padding, so that no mask is constant.
    """
    import torch

    class PooledNetwork(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor
            hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            if model.pooling == "cls":
                return hidden[:, 0]
            if model.pooling == "mean":
                mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
                return (hidden * mask).sum(1) / mask.sum(1)
            return hidden[torch.arange(hidden.shape[0]), attention_mask.sum(1) - 1]

    ids = torch.full((2, 7), model.pad_id + 5)
    mask = torch.ones_like(ids)
    ids[1, 5:] = model.pad_id
    mask[1, 5:] = 0
    return convert_network(PooledNetwork(), {"input_ids": ids, "attention_mask": mask})


def convert_network(network: torch.nn.Module, example: object) -> openvino.Model:
    """The OpenVINO model of a torch one, traced with an example of its inputs.

    Torch would trace it twice and compare the traces, which takes a third of the time. Whoever converts a
    model compares its rows or scores with torch's, which says more.
    """
    package = import_openvino()
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = TorchScriptPythonDecoder(network, example_input=example, trace_kwargs={"check_trace": False})
        return package.convert_model(traced, example_input=example)


def _forward(converted: openvino.Model) -> Forward:
    computed = _in_fp32(converted)
    return lambda some: ((batch.rows, computed(batch.ids, batch.mask)) for batch in some)


def _quantize_model(source: Path, target: Path, calibration: Path) -> None:
    """Write a converted model whose matrix products take weights and activations in int8.

    `source` and `target` are `.xml` files with weights beside them, `calibration` the `.npz` of
    batches.
    """
    openvino = import_openvino()
    import nncf

    with np.load(calibration, allow_pickle=False) as stored:
        inputs = [
            {"input_ids": stored[name], "attention_mask": stored[name.replace("ids", "mask")]}
            for name in stored.files
            if name.startswith("ids")
        ]
    quantized = nncf.quantize(
        openvino.Core().read_model(source),
        nncf.Dataset(inputs),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.MIXED,  # activations are skewed after GELU, weights are not
        subset_size=len(inputs),
    )
    openvino.save_model(quantized, str(target), compress_to_fp16=False)


load, CONVERSION = OpenVINOBackend, OpenVINOConversion()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        _convert(*conversion.read_task())
    else:
        _quantize_model(*map(Path, sys.argv[1:]))
