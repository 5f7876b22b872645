"""The `sentence-transformers` backend of rerankers: a CrossEncoder of that library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pipeline.config import RerankSettings
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.core.records import Float32
from pipeline.encoders.torch.loading import explain_loading_errors
from pipeline.rerankers import Reranker

CHUNK = 256  # pairs between two advances of the progress bar
BATCH = 32  # pairs of a batch, the library's default


class SentenceTransformersRerankSettings(RerankSettings):
    """A CrossEncoder of sentence-transformers, on CPU or GPU; its scores are those of `predict`."""

    backend: Literal["sentence-transformers"] = RerankSettings.narrowed("backend", "sentence-transformers")
    precision: Literal["fp32", "fp16", "bf16"] = RerankSettings.narrowed("precision", "fp32")

    def load(self, model: Reranker) -> CrossEncoderScorer:
        """See `RerankSettings.load`."""
        return CrossEncoderScorer(model, self.batch_size or BATCH)


class CrossEncoderScorer:
    """See `pipeline.rerankers.Scorer`."""

    def __init__(self, model: Reranker, batch_size: int) -> None:
        import torch
        from sentence_transformers import CrossEncoder

        self._batch_size = batch_size
        dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[model.precision]
        with explain_loading_errors(model, "sentence_transformers"):
            self._network: Any = CrossEncoder(
                str(model.files.folder()),
                device=model.device,
                max_length=model.max_length,
                local_files_only=True,
                trust_remote_code=model.trust_remote_code,
                model_kwargs={"dtype": dtype},
            )
        if self._network.num_labels != 1:
            raise InputError(
                f"rerank.name: '{model.name}' gives {self._network.num_labels} values for a pair",
                allowed="a reranker, which gives one",
                fix="choose another model, such as BAAI/bge-reranker-base",
            )

    def score(self, pairs: Sequence[tuple[str, str]], bar: Bar) -> Float32:
        """See `pipeline.rerankers.Scorer.score`; pairs of similar length are computed together."""
        order = np.argsort([-len(query) - len(passage) for query, passage in pairs], kind="stable")
        scores = np.empty(len(pairs), np.float32)
        for start in range(0, len(pairs), CHUNK):
            rows = order[start : start + CHUNK]
            chosen = [list(pairs[row]) for row in rows]
            scores[rows] = self._network.predict(chosen, batch_size=self._batch_size, show_progress_bar=False)
            bar.update(len(rows))
        return scores
