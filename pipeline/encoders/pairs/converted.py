"""The `openvino` backend of rerankers: cross-encoders converted once from torch, then run on the CPU.

The conversion runs in a process of its own (see `pipeline.encoders.conversion`):

python -m pipeline.encoders.pairs.converted FOLDER OUT '{"name": "…", "trust_remote_code": false}'

A converted model must give the scores that torch gives. They are compared on `PROBES`: each of a few
questions with each of their answers, so that a reranker's logits span the range that they have in use, and
one long pair, which shows wrong positions or a wrong mask.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from pipeline.config.rerank import FlagRerankSettings, OpenVINORerankSettings
from pipeline.core.errors import InputError
from pipeline.core.installation import import_openvino, require
from pipeline.core.records import Float32, Int64
from pipeline.encoders import conversion
from pipeline.encoders.base import Opener
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.conversion import keep_files
from pipeline.encoders.openvino.backend import (
    DESCRIPTION,
    FILES,
    TOKENIZER,
    OpenVINOBatches,
    OpenVINORunner,
)
from pipeline.encoders.pairs.cross_encoders import TYPES, load_classifier
from pipeline.encoders.pairs.scorer import (
    Pair,
    PairScorer,
    PairTokenizer,
    Reranker,
    encoder_tokenizer,
    longest_first,
    template_of,
    token_types,
)
from pipeline.encoders.torch.loading import limit_last_layer_to_first_token
from pipeline.models.card import max_positions
from pipeline.models.tokenizer import write_tokenizer
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)

SCHEMA = 1
TOLERANCE = 1e-4  # largest difference from torch's scores, as a share of the largest or of 1


class OpenVINORerankOpener(Opener[OpenVINORerankSettings, Reranker, PairScorer]):
    """A cross-encoder converted once from torch."""

    def suits(self, model: Reranker) -> bool:
        """Whether a model is a cross-encoder."""
        return model.architecture.endswith("ForSequenceClassification")

    def load(self, settings: OpenVINORerankSettings, model: Reranker, prepared: Path | None) -> PairScorer:
        """Load the converted model."""
        assert prepared is not None
        return PairScorer(_Backend(settings, model, prepared), settings.batch_size)

    def recipe(self, model: Reranker) -> Recipe:
        """The recipe of the converted model."""
        require("openvino", "openvino", "rerank.backend: openvino")
        return conversion_recipe(model, SCHEMA)

    def prepare(self, model: Reranker, store: Store) -> Artifact:
        """The converted model and its tokenizer."""
        return store.make(self.recipe(model), lambda draft: _make(model, draft))


class _Backend(OpenVINOBatches, OpenVINORunner):
    """See `pipeline.encoders.pairs.scorer.PairBackend`."""

    def __init__(self, config: FlagRerankSettings, model: Reranker, prepared: Path) -> None:
        from tokenizers import Tokenizer

        OpenVINOBatches.__init__(self, model)
        OpenVINORunner.__init__(self, prepared / DESCRIPTION, model.precision == "bf16")
        inputs = json.loads((prepared / INPUTS).read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.tokenizer = encoder_tokenizer(config, model, tokenizer, inputs)

    @override
    def inputs(self, batch: TokenBatch) -> dict[str, Int64]:
        types = token_types(batch, self.tokenizer.template)
        return super().inputs(batch) | ({} if types is None else {TYPES: types})


def _make(model: Reranker, draft: Draft) -> dict[str, Any]:
    log.info("converting %s to OpenVINO, once", model.name)
    allowed = "cross-encoders that transformers loads as …ForSequenceClassification and OpenVINO traces"
    with draft.scratch() as aside:
        convert_in_subprocess(model, aside / DESCRIPTION, allowed)
        compiled = import_openvino().compile_model(
            str(aside / DESCRIPTION), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
        )

        def score(*inputs: Int64) -> Float32:
            scores: Float32 = compiled(list(inputs))[0]
            return scores

        difference, span = largest_difference(score, aside / EXPECTED)
        if not difference <= TOLERANCE * max(span, 1):  # also if one is NaN
            raise InputError(
                f"the scores of reranker '{model.name}' differ from torch's by {difference:.2g}",
                allowed=f"{TOLERANCE:g}",
                fix="set rerank.backend to flag",
            )
        keep_files(aside, draft, (*FILES, INPUTS))
    return {"name": model.name}


INPUTS, EXPECTED = "inputs.json", "expected.npz"
"""The names of the network's inputs, and what torch gives for the probes."""
LONGEST = 300  # tokens of the longest probe
_ANSWERS = {
    "how long do bees live": "A worker bee lives for about six weeks in summer, and a queen for years.",
    "what is the capital of australia": "Canberra has been the capital of Australia since 1913.",
    "why is the sky blue": "Air scatters the short waves of sunlight more than the long ones, so it is blue.",
    "who wrote the magic mountain": "Thomas Mann published the novel The Magic Mountain in November 1924.",
    "boiling point of water at altitude": "Water boils at 93 degrees Celsius at an altitude of 2,000 metres.",
    "is a tomato a fruit": "Botanists count the tomato among the fruits, and cooks among the vegetables.",
}
PROBES: tuple[Pair, ...] = (
    *((question, answer) for question in _ANSWERS for answer in _ANSWERS.values()),
    ("why is the sky blue", " ".join([*_ANSWERS.values()] * 8)),
)


def conversion_recipe(model: Reranker, schema: int) -> Recipe:
    """Everything that shapes the converted model."""
    plain = {
        "schema": schema,
        "pairs": True,
        "model": model.files.identity,
        "trust_remote_code": model.trust_remote_code,
        "openvino": metadata.version("openvino"),
    }
    return Recipe("openvino", plain)


def convert_in_subprocess(model: Reranker, target: Path, allowed: str) -> None:
    """Convert a reranker; `target` is the file to write, the others go beside it.

    Raises:
        InputError: OpenVINO does not support the model: `allowed` says which it does.
    """
    settings = {"name": model.name, "trust_remote_code": model.trust_remote_code}
    arguments = [str(model.files.folder()), str(target), json.dumps(settings)]
    error = conversion.run_in_subprocess("pipeline.encoders.pairs.converted", arguments, target)
    if error is not None:
        reason = conversion.reason_of(error, model)
        raise InputError(
            f"reranker '{model.name}' cannot be converted for backend openvino: {reason}",
            allowed=allowed,
            fix="set rerank.backend to flag",
        )
    model.files.check()


def largest_difference(score: Callable[..., Float32], expected: Path) -> tuple[float, float]:
    """The largest difference from torch's scores of the probes, and the range of those.

    Args:
        score: Gives float32 [b] from the network's inputs by position: ids, mask and, if it has them, types.
        expected: The file that the conversion wrote.
    """
    differences, wanted = [], []
    with np.load(expected, allow_pickle=False) as stored:
        for part in ("short", "long"):
            inputs = [stored[name] for name in stored.files if name.startswith(f"{part}-input")]
            wanted.append(stored[f"{part}-scores"])
            differences.append(np.abs(score(*inputs) - wanted[-1]).max())
    scores = np.concatenate(wanted)
    return float(max(differences)), float(scores.max() - scores.min())


def _convert(folder: Path, target: Path, name: str, trust_remote_code: bool) -> None:
    """Write the converted model, its tokenizer, the names of its inputs and torch's scores of the probes."""
    from transformers import AutoTokenizer

    fast = write_tokenizer(folder, target.with_name(TOKENIZER), name, trust_remote_code)
    known = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code).model_input_names
    network = load_classifier(folder, trust_remote_code)
    template = template_of(fast)
    typed = template.typed and TYPES in known
    names = ["input_ids", "attention_mask", *([TYPES] if typed else [])]
    target.with_name(INPUTS).write_text(json.dumps(names), encoding="utf-8")
    room = min(LONGEST, max_positions(network.config.to_dict())) - template.size
    pairs = PairTokenizer(fast, template, room, longest_first)
    pad_id = network.config.pad_token_id or 0
    probes = {
        "short": _inputs(pairs, PROBES[:-1], pad_id, typed),
        "long": _inputs(pairs, PROBES[-1:], pad_id, typed),
    }
    np.savez(target.with_name(EXPECTED), **_expected(network, names, probes))
    _trace(network, names, probes["short"], target)


def _inputs(tokenizer: PairTokenizer, pairs: Sequence[Pair], pad_id: int, typed: bool) -> list[Int64]:
    """The network's inputs for some pairs, int64 [pairs, tokens] each."""
    ids, second = tokenizer.tokenize(pairs)
    width = max(map(len, ids))
    mask = (np.arange(width) < np.array([[len(one)] for one in ids])).astype(np.int64)
    padded = np.full(mask.shape, pad_id, np.int64)
    padded[mask.astype(bool)] = np.concatenate(ids)
    types = (np.arange(width) >= np.array(second)[:, None]) * mask
    return [padded, mask, *([types] if typed else [])]


def _expected(network: Any, names: Sequence[str], probes: dict[str, list[Int64]]) -> dict[str, Any]:
    """The inputs of each group of probes, and torch's scores of them, by their names in a file."""
    import torch

    arrays: dict[str, Any] = {}
    for part, inputs in probes.items():
        tensors = map(torch.from_numpy, inputs)
        with torch.inference_mode():
            logits = network(**dict(zip(names, tensors, strict=True))).logits
        arrays[f"{part}-scores"] = logits.reshape(-1).numpy()
        arrays |= {f"{part}-input-{number}": array for number, array in enumerate(inputs)}
    return arrays


def _trace(network: Any, names: list[str], example: list[Int64], target: Path) -> None:
    """Write the network as OpenVINO IR."""
    import torch

    from pipeline.core.installation import import_openvino

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.network(**dict(zip(names, inputs, strict=True))).logits
            return logits[:, 0]

    limit_last_layer_to_first_token(network.base_model)
    openvino = import_openvino()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = openvino.convert_model(
            Scores(), example_input=tuple(torch.from_numpy(array) for array in example)
        )
    for place, name in enumerate(names):
        converted.inputs[place].get_tensor().set_names({name})
    openvino.save_model(converted, str(target), compress_to_fp16=False)


if __name__ == "__main__":
    _convert(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3]))
