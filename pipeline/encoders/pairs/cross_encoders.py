"""Cross-encoders in PyTorch: networks with a classification head, and sentence-transformers' CrossEncoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from pipeline.config.rerank import RerankSettings
from pipeline.core.display import NO_BAR, Bar
from pipeline.core.records import Float32, TextPair
from pipeline.encoders.batching import TokenBatch, Usage
from pipeline.encoders.opener import Scorer
from pipeline.encoders.pairs.scorer import (
    BatchedScorer,
    PairTokenizer,
    inputs_of,
    template_of,
)
from pipeline.encoders.torch.attention import limit_last_layer_to_first_token
from pipeline.encoders.torch.backend import DTYPES, TorchRunner
from pipeline.encoders.torch.checks import observe
from pipeline.encoders.torch.loading import loading
from pipeline.models.reranker import ResolvedReranker, check_labels

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

PAIRS = 32  # of a batch of `predict`, by its own default


class TorchPairs(TorchRunner[Float32]):
    """Computes pairs on a device; a subclass sets the tokenizer, and says how a batch is scored."""

    length_setting = "rerank.max_length"
    tokenizer: PairTokenizer


class Classifier(TorchPairs):
    """A network of transformers' `…ForSequenceClassification`, with one score."""

    network: PreTrainedModel

    def __init__(self, model: ResolvedReranker, network: PreTrainedModel) -> None:
        """Take a loaded network; where its head reads the first token, the last layer computes no other."""
        super().__init__(model, network)
        self.network = network
        limit_last_layer_to_first_token(network)

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        inputs = inputs_of(batch, self.tokenizer.template)
        tensors = {name: self.on_device(array) for name, array in inputs.items()}
        logits: torch.Tensor = self.network(**tensors, return_dict=True).logits
        return logits.float().reshape(len(batch.rows))


def load(settings: RerankSettings, model: ResolvedReranker, prepared: Path | None) -> Scorer:
    """A CrossEncoder of sentence-transformers."""
    if model.by_predict:
        return _Predicting(settings, model)
    return BatchedScorer(_CrossEncoder(model), settings.batch_size)


def library_scores(settings: RerankSettings, model: ResolvedReranker, pairs: Sequence[TextPair]) -> Float32:
    """The scores that the library's own CrossEncoder gives to pairs, each alone."""
    alone = settings.model_copy(update={"batch_size": 1})
    return _Predicting(alone, model).score(pairs, Usage(), NO_BAR)


class _Predicting:
    """A CrossEncoder that `predict` runs, with the template, the prompt and all modules of the model."""

    def __init__(self, settings: RerankSettings, model: ResolvedReranker) -> None:
        from sentence_transformers import CrossEncoder

        self.backend = self
        with loading(model):
            self.encoder = CrossEncoder(str(model.files.folder()), **_arguments(model))
            check_labels(model.name, self.encoder.num_labels)
            self.figures, reads_padding = observe(model, self.encoder.eval())
        self.batch_size = 1 if reads_padding else settings.batch_size or PAIRS

    def score(self, pairs: Sequence[TextPair], usage: Usage, bar: Bar) -> Float32:
        """See `Scorer`; tokens are not counted."""
        usage.texts += len(pairs)
        scores = self.encoder.predict(
            [list(pair) for pair in pairs], batch_size=self.batch_size, show_progress_bar=False
        )
        bar.update(len(pairs))
        return np.asarray(scores, np.float32).reshape(len(pairs))


class _CrossEncoder(Classifier):
    """A CrossEncoder that takes token ids; its activation is the one that the model's files name."""

    def __init__(self, model: ResolvedReranker) -> None:
        from sentence_transformers import CrossEncoder

        with loading(model):
            encoder = CrossEncoder(str(model.files.folder()), **_arguments(model))
            check_labels(model.name, encoder.num_labels)
            super().__init__(model, encoder.model)
        self.activation = encoder.activation_fn
        fast = model.tokenizer.of_library(encoder.tokenizer)
        template = template_of(fast, encoder.tokenizer.model_input_names)
        self.tokenizer = PairTokenizer(fast, template, model.max_length - template.size)

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        import torch

        logits = super().compute(batch)
        # an activation may make a plausible score of an infinite logit: a NaN stays one, and is refused later
        scores: torch.Tensor = self.activation(torch.where(logits.isfinite(), logits, torch.nan))
        return scores


def _arguments(model: ResolvedReranker) -> dict[str, Any]:
    """What CrossEncoder is made with: the model's precision and device."""
    import torch

    return {
        "device": model.device,
        "max_length": model.max_length,
        "local_files_only": True,
        "trust_remote_code": model.trust_remote_code,
        "model_kwargs": {"dtype": getattr(torch, DTYPES[model.precision])},
    }
