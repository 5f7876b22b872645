"""The `openvino` backend of rerankers: cross-encoders converted once from torch, then run on the CPU.

The conversion runs in a process of its own (see `pipeline.encoders.conversion`):

python -m pipeline.encoders.pairs.converted < TASK

A converted model must give the scores that FlagEmbedding gives; see `pipeline.encoders.agreement`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from pipeline.config.rerank import FlagRerankSettings
from pipeline.core.installation import import_openvino, require
from pipeline.core.records import Int64
from pipeline.encoders.agreement import PAIRS
from pipeline.encoders.batching import TokenBatch, padded
from pipeline.encoders.conversion import Conversion, read_task
from pipeline.encoders.openvino import (
    FILES,
    TOKENIZER,
    OpenVINOBatches,
    OpenVINORunner,
    convert_network,
    convert_once,
    is_traced,
)
from pipeline.encoders.pairs.flag_rerankers import library_scores as library_scores
from pipeline.encoders.pairs.scorer import (
    BatchedScorer,
    PairTokenizer,
    encoder_tokenizer,
    inputs_of,
    template_of,
)
from pipeline.encoders.torch.attention import limit_last_layer_to_first_token
from pipeline.encoders.torch.loading import load_network
from pipeline.models.reranker import ResolvedReranker
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    import openvino
    import torch
    from transformers import PreTrainedModel

SCHEMA = 2
LONGEST = 64  # tokens of the texts of an example
INPUTS = "inputs.json"
"""The names of the network's inputs."""


class RerankConversion(Conversion):
    """A cross-encoder converted once from torch."""

    @override
    def suits(self, model: ResolvedReranker) -> bool:
        """Whether a model is a cross-encoder whose network is known to convert."""
        return model.architecture.endswith("ForSequenceClassification") and is_traced(model)

    @override
    def recipe(self, model: ResolvedReranker) -> Recipe:
        require("openvino", "openvino", "rerank.backend: openvino")
        plain = {
            "schema": SCHEMA,
            "pairs": True,
            "model": model.identity,
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


class _ConvertedReranker(OpenVINORunner):
    """A converted cross-encoder."""

    def __init__(self, config: FlagRerankSettings, model: ResolvedReranker, prepared: Path) -> None:
        from tokenizers import Tokenizer

        super().__init__(model, prepared)
        inputs = json.loads((prepared / INPUTS).read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.tokenizer = encoder_tokenizer(config, model, tokenizer, inputs)

    @override
    def inputs(self, batch: TokenBatch) -> dict[str, Int64]:
        return inputs_of(batch, self.tokenizer.template)


def convert(model: ResolvedReranker, target: Path) -> None:
    """Write the converted model, its tokenizer, and the names of its inputs."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    folder, trust = model.files.folder(), model.trust_remote_code
    fast = Tokenizer.from_file(str(target.with_name(TOKENIZER)))
    known = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust).model_input_names
    network = load_network(model, "AutoModelForSequenceClassification", target)
    if network.config.num_labels != 1:
        raise ValueError(f"it gives {network.config.num_labels} values for a pair")
    template = template_of(fast, known)
    ids, second, _ = PairTokenizer(fast, template, LONGEST).tokenize(PAIRS[:-1])
    rows, mask = padded(OpenVINOBatches(model), ids, max(map(len, ids)))
    example = inputs_of(TokenBatch(np.arange(len(ids)), rows, mask, np.array(second)), template)
    target.with_name(INPUTS).write_text(json.dumps([*example]), encoding="utf-8")
    converted = _traced(network, example)
    import_openvino().save_model(converted, str(target), compress_to_fp16=False)


def _traced(network: PreTrainedModel, example: Mapping[str, Int64]) -> openvino.Model:
    """The OpenVINO model of a torch one, with the names of these inputs."""
    import torch

    class LogitNetwork(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.network(**dict(zip(example, inputs, strict=True))).logits
            return logits[:, 0]

    limit_last_layer_to_first_token(network)
    converted = convert_network(LogitNetwork(), tuple(map(torch.from_numpy, example.values())))
    for place, name in enumerate(example):
        converted.inputs[place].get_tensor().set_names({name})
    return converted


CONVERSION = RerankConversion()


if __name__ == "__main__":
    convert(*read_task())
