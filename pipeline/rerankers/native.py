"""The `native` backend of rerankers: cross-encoders computed by this project's kernels."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipeline.config import RerankSettings
from pipeline.config.rerank import FlagRerankSettings
from pipeline.core.errors import InputError
from pipeline.core.records import Float32
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.conversion import keep_files
from pipeline.encoders.native import abilities
from pipeline.encoders.native.prepared import TOKENIZER, WEIGHTS
from pipeline.encoders.native.running import NativeRunner
from pipeline.rerankers import conversion
from pipeline.rerankers.model import Reranker
from pipeline.rerankers.pairs import PairScorer, encoder_tokenizer, token_types
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.rerankers.packing import PackedClassifier

log = logging.getLogger(__name__)

SCHEMA = 7
ARCHITECTURES = tuple(f"{kind}ForSequenceClassification" for kind in ("Bert", "Roberta", "XLMRoberta"))
TOLERANCES = {"fp32": 1e-4, "int16": 1e-3}
"""By precision the largest difference from torch's scores, as a share of their range."""


class NativeRerankSettings(FlagRerankSettings):
    """This project's own kernels, on the CPU."""

    on_gpu = False

    backend: Literal["native"] = RerankSettings.narrowed("backend", "native")
    precision: Literal["fp32", "int16"] = RerankSettings.narrowed(
        "precision", "fp32", doc="number format of the products; int16 is faster, and less exact"
    )
    device: Literal["auto", "cpu"] = RerankSettings.narrowed(
        "device", "auto", doc="auto or cpu: it computes nowhere else"
    )

    def suits(self, model: Reranker) -> bool:
        """See `RunsModel.suits`."""
        is_classifier = model.architecture in ARCHITECTURES
        return is_classifier and abilities.runs_here(model.config, model.trust_remote_code)

    def load(self, model: Reranker, prepared: Path) -> PairScorer:
        """See `RerankSettings.load`."""
        return PairScorer(_Backend(self, model, prepared), self.batch_size)

    def prepared_recipe(self, model: Reranker) -> Recipe:
        """See `RerankSettings.prepared_recipe`."""
        return conversion.conversion_recipe(model, "native", SCHEMA, "numba", precision=model.precision)

    def prepare(self, model: Reranker, store: Store) -> Artifact:
        """See `RerankSettings.prepare`: the packed model and its tokenizer."""
        return store.make(self.prepared_recipe(model), lambda draft: (_pack(model, draft), {}))[0]


class _Backend(NativeRunner):
    """See `pipeline.rerankers.pairs.PairBackend`."""

    length_settings = "rerank.max_length"
    network: PackedClassifier

    def __init__(self, config: FlagRerankSettings, model: Reranker, prepared: Path) -> None:
        from tokenizers import Tokenizer

        from pipeline.rerankers.packing import PackedClassifier

        super().__init__(model.name, model.pad_id, PackedClassifier(prepared / WEIGHTS))
        inputs = json.loads((prepared / conversion.INPUTS).read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.tokenizer = encoder_tokenizer(config, model, tokenizer, inputs)

    def compute(self, batch: TokenBatch) -> Float32:
        """The score of each pair of a batch, float32 [b]."""
        return self.network.scores(batch.ids, batch.mask, token_types(batch, self.tokenizer.template))


def _pack(model: Reranker, draft: Draft) -> dict[str, Any]:
    from pipeline.rerankers.packing import PackedClassifier

    log.info("packing %s in %s, once", model.name, model.precision)
    tolerance = TOLERANCES[model.precision]
    with draft.scratch() as aside:
        conversion.convert_in_subprocess(model, "native", aside / WEIGHTS, abilities.LIMITS)
        packed = PackedClassifier(aside / WEIGHTS)
        difference, span = conversion.largest_difference(packed.scores, aside / conversion.EXPECTED)
        if not difference <= tolerance * span:  # also if one is NaN
            raise InputError(
                f"the scores of reranker '{model.name}' differ in {model.precision} by {difference:.2g}, and "
                f"they span {span:.2g}",
                allowed=f"{tolerance:g} of their range",
                fix="set rerank.backend to flag",
            )
        keep_files(aside, draft, (WEIGHTS, TOKENIZER, conversion.INPUTS))
    return {"name": model.name, "difference": difference, "range": span}
