"""The `openvino` backend of rerankers: cross-encoders converted once from torch, then run on the CPU."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from pipeline.config.rerank import FlagRerankSettings, OpenVINORerankSettings
from pipeline.core.errors import InputError
from pipeline.core.extras import require
from pipeline.core.openvino_runtime import import_openvino
from pipeline.core.records import Float32, Int64
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.conversion import keep_files
from pipeline.encoders.opener import Opener
from pipeline.encoders.openvino.backend import (
    DESCRIPTION,
    FILES,
    TOKENIZER,
    OpenVINOBatches,
    OpenVINORunner,
)
from pipeline.rerankers import conversion
from pipeline.rerankers.classifier import TYPES
from pipeline.rerankers.model import Reranker
from pipeline.rerankers.pairs import PairScorer, encoder_tokenizer, token_types
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
        return conversion.conversion_recipe(model, SCHEMA)

    def prepare(self, model: Reranker, store: Store) -> Artifact:
        """The converted model and its tokenizer."""
        return store.make(self.recipe(model), lambda draft: (_convert(model, draft), {}))[0]


class _Backend(OpenVINOBatches, OpenVINORunner):
    """See `pipeline.rerankers.pairs.PairBackend`."""

    def __init__(self, config: FlagRerankSettings, model: Reranker, prepared: Path) -> None:
        from tokenizers import Tokenizer

        OpenVINOBatches.__init__(self, model)
        OpenVINORunner.__init__(self, prepared / DESCRIPTION, model.precision == "bf16")
        inputs = json.loads((prepared / conversion.INPUTS).read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.tokenizer = encoder_tokenizer(config, model, tokenizer, inputs)

    def inputs(self, batch: TokenBatch) -> dict[str, Int64]:
        """See `OpenVINORunner.inputs`."""
        types = token_types(batch, self.tokenizer.template)
        return super().inputs(batch) | ({} if types is None else {TYPES: types})


def _convert(model: Reranker, draft: Draft) -> dict[str, Any]:
    log.info("converting %s to OpenVINO, once", model.name)
    allowed = "cross-encoders that transformers loads as …ForSequenceClassification and OpenVINO traces"
    with draft.scratch() as aside:
        conversion.convert_in_subprocess(model, aside / DESCRIPTION, allowed)
        compiled = import_openvino().compile_model(
            str(aside / DESCRIPTION), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
        )

        def score(*inputs: Int64) -> Float32:
            scores: Float32 = compiled(list(inputs))[0]
            return scores

        difference, span = conversion.largest_difference(score, aside / conversion.EXPECTED)
        if not difference <= TOLERANCE * max(span, 1):  # also if one is NaN
            raise InputError(
                f"the scores of reranker '{model.name}' differ from torch's by {difference:.2g}",
                allowed=f"{TOLERANCE:g}",
                fix="set rerank.backend to flag",
            )
        keep_files(aside, draft, (*FILES, conversion.INPUTS))
    return {"name": model.name}
