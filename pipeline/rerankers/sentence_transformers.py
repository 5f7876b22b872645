"""The `sentence-transformers` backend of rerankers: a CrossEncoder of that library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config.rerank import SentenceTransformersRerankSettings
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.opener import Opener
from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.models.tokenizer import fast_tokenizer
from pipeline.rerankers.classifier import TYPES, Classifier
from pipeline.rerankers.model import Reranker, check_labels
from pipeline.rerankers.pairs import PairScorer, PairTokenizer, longest_first, template_of

if TYPE_CHECKING:
    import torch


class SentenceTransformersRerankOpener(Opener[SentenceTransformersRerankSettings, Reranker, PairScorer]):
    """A CrossEncoder of sentence-transformers."""

    def load(
        self, settings: SentenceTransformersRerankSettings, model: Reranker, prepared: Path | None
    ) -> PairScorer:
        """Load the CrossEncoder."""
        return PairScorer(_Backend(model), settings.batch_size)


class _Backend(Classifier):
    """A CrossEncoder that takes token ids; its activation is the one that the model's files name."""

    def __init__(self, model: Reranker) -> None:
        super().__init__(model)
        folder = model.files.folder()
        with explain_loading_errors(model, "sentence_transformers"):
            encoder = _load(model, folder, self.dtype)
        check_labels(model.name, encoder.num_labels)
        refuse_missing_weights(model, folder, encoder.model)
        self.activation: Any = encoder.activation_fn
        fast = fast_tokenizer(model.name, encoder.tokenizer)
        template = template_of(fast)
        if TYPES not in encoder.tokenizer.model_input_names:
            template = template._replace(typed=False)
        self.tokenizer = PairTokenizer(fast, template, model.max_length - template.size, longest_first)
        self.use(encoder.model)

    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """The score of each pair of a batch, float32 [b] on the device."""
        scores: torch.Tensor = self.activation(super().compute(batch))
        return scores


def _load(model: Reranker, folder: Path, dtype: torch.dtype) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(
        str(folder),
        device=model.device,
        max_length=model.max_length,
        local_files_only=True,
        trust_remote_code=model.trust_remote_code,
        model_kwargs={"dtype": dtype},
    )
