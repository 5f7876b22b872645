"""The `openvino` backend of rerankers: cross-encoders converted once from torch, then run on the CPU.

The conversion runs in a process of its own (see `pipeline.encoders.conversion`):

python -m pipeline.encoders.pairs.converted < TASK

A converted model must give the scores that torch gives. They are compared on `PROBES`: each of a few
questions with each of their answers, so that a reranker's logits span the range that they have in use, and
one long pair, which shows wrong positions or a wrong mask.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from pipeline.config.rerank import FlagRerankSettings
from pipeline.core.installation import import_openvino, require
from pipeline.core.records import Float32, Int64, TextPair
from pipeline.encoders.batching import TokenBatch, padded
from pipeline.encoders.conversion import read_task
from pipeline.encoders.opener import Conversion
from pipeline.encoders.openvino import (
    DESCRIPTION,
    FILES,
    TOKENIZER,
    OpenVINOBatches,
    OpenVINORunner,
    convert_network,
    convert_once,
)
from pipeline.encoders.pairs.cross_encoders import TYPES
from pipeline.encoders.pairs.scorer import (
    BatchedScorer,
    PairTokenizer,
    encoder_tokenizer,
    template_of,
    token_types,
)
from pipeline.encoders.torch.loading import limit_last_layer_to_first_token, load_network
from pipeline.models.card import max_positions
from pipeline.models.reranker import ResolvedReranker
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    import openvino
    import torch
    from transformers import PreTrainedModel

SCHEMA = 1
TOLERANCE = 1e-4  # largest difference from torch's scores, as a share of the largest or of 1
INPUTS = "inputs.json"
"""The names of the network's inputs."""


class RerankConversion(Conversion):
    """A cross-encoder converted once from torch."""

    @override
    def suits(self, model: ResolvedReranker) -> bool:
        """Whether a model is a cross-encoder."""
        return model.architecture.endswith("ForSequenceClassification")

    @override
    def recipe(self, model: ResolvedReranker) -> Recipe:
        require("openvino", "openvino", "rerank.backend: openvino")
        plain = {
            "schema": SCHEMA,
            "pairs": True,
            "model": model.files.identity,
            "tokenizer": model.tokenizer.probe,
            "trust_remote_code": model.trust_remote_code,
            "openvino": metadata.version("openvino"),
        }
        return Recipe("openvino", plain)

    @override
    def make(self, model: ResolvedReranker, store: Store) -> Artifact:
        allowed = "…ForSequenceClassification that transformers loads and OpenVINO traces"
        files = (*FILES, INPUTS)
        return store.make(
            self.recipe(model), lambda draft: convert_once(model, draft, __name__, allowed, files, "rerank")
        )


def load(settings: FlagRerankSettings, model: ResolvedReranker, prepared: Path) -> BatchedScorer:
    """The converted network of a cross-encoder."""
    return BatchedScorer(_ConvertedReranker(settings, model, prepared), settings.batch_size)


class _ConvertedReranker(OpenVINOBatches, OpenVINORunner):
    """A converted cross-encoder; `prepared` is its folder."""

    def __init__(self, config: FlagRerankSettings, model: ResolvedReranker, prepared: Path) -> None:
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


LONGEST = 300  # tokens of the longest probe
_ANSWERS = {
    "how long do bees live": "A worker bee lives for about six weeks in summer, and a queen for years.",
    "what is the capital of australia": "Canberra has been the capital of Australia since 1913.",
    "why is the sky blue": "Air scatters the short waves of sunlight more than the long ones, so it is blue.",
    "who wrote the magic mountain": "Thomas Mann published the novel The Magic Mountain in November 1924.",
    "boiling point of water at altitude": "Water boils at 93 degrees Celsius at an altitude of 2,000 metres.",
    "is a tomato a fruit": "Botanists count the tomato among the fruits, and cooks among the vegetables.",
}
PROBES: tuple[TextPair, ...] = (
    *((question, answer) for question in _ANSWERS for answer in _ANSWERS.values()),
    ("why is the sky blue", " ".join([*_ANSWERS.values()] * 8)),
)


def convert(model: ResolvedReranker, target: Path) -> None:
    """Write the converted model, its tokenizer, and the names of its inputs.

    Raises:
        ValueError: The converted model gives other scores than torch.
    """
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    folder, trust = model.files.folder(), model.trust_remote_code
    fast = Tokenizer.from_file(str(target.with_name(TOKENIZER)))
    known = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust).model_input_names
    network = load_network(model, "AutoModelForSequenceClassification")
    if network.config.num_labels != 1:
        raise ValueError(f"it gives {network.config.num_labels} values for a pair")
    template = template_of(fast)
    typed = template.typed and TYPES in known
    names = ["input_ids", "attention_mask", *([TYPES] if typed else [])]
    target.with_name(INPUTS).write_text(json.dumps(names), encoding="utf-8")
    room = min(LONGEST, max_positions(network.config.to_dict())) - template.size
    pairs = PairTokenizer(fast, template, room)
    pad_id = network.config.pad_token_id or 0
    probes = [_inputs(pairs, some, pad_id, typed) for some in (PROBES[:-1], PROBES[-1:])]
    with torch.inference_mode():
        tensors = [dict(zip(names, map(torch.from_numpy, inputs), strict=True)) for inputs in probes]
        expected: list[Float32] = [network(**inputs).logits.reshape(-1).numpy() for inputs in tensors]
    converted = _traced(network, names, probes[0])
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = import_openvino().compile_model(converted, "CPU", settings)
    scores = [compiled(inputs)[0] for inputs in probes]
    difference = np.max([np.abs(ours - torchs).max() for ours, torchs in zip(scores, expected, strict=True)])
    allowed = TOLERANCE * max(float(np.ptp(np.concatenate(expected))), 1)
    if not difference <= allowed:  # also if it is NaN
        raise ValueError(
            f"its scores differ from torch's by {difference:.2g}, and the limit is {allowed:.2g}"
        )
    import_openvino().save_model(converted, str(target), compress_to_fp16=False)


def _inputs(tokenizer: PairTokenizer, pairs: Sequence[TextPair], pad_id: int, typed: bool) -> list[Int64]:
    """The network's inputs for some pairs, int64 [pairs, tokens] each."""
    ids, second, _ = tokenizer.tokenize(pairs)
    rows, mask = padded(ids, max(map(len, ids)), pad_id)
    types = (np.arange(rows.shape[1]) >= np.array(second)[:, None]) * mask
    return [rows, mask, *([types] if typed else [])]


def _traced(network: PreTrainedModel, names: Sequence[str], example: Sequence[Int64]) -> openvino.Model:
    """The OpenVINO model of a torch one, with these names of its inputs."""
    import torch

    class LogitNetwork(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.network(**dict(zip(names, inputs, strict=True))).logits
            return logits[:, 0]

    limit_last_layer_to_first_token(network.base_model)
    converted = convert_network(LogitNetwork(), tuple(torch.from_numpy(array) for array in example))
    for place, name in enumerate(names):
        converted.inputs[place].get_tensor().set_names({name})
    return converted


if __name__ == "__main__":
    convert(*read_task())
