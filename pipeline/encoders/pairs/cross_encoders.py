"""Cross-encoders in PyTorch: networks with a classification head, and sentence-transformers' CrossEncoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from pipeline.config.rerank import RerankSettings
from pipeline.core.records import Float32
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.pairs.scorer import (
    BatchedScorer,
    PairTokenizer,
    template_of,
    token_types,
)
from pipeline.encoders.torch.backend import TorchRunner
from pipeline.encoders.torch.devices import fitting
from pipeline.encoders.torch.loading import limit_last_layer_to_first_token, loading
from pipeline.models.reranker import ResolvedReranker, check_labels

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder
    from transformers import PreTrainedModel

TYPES = "token_type_ids"


class TorchPairs(TorchRunner[Float32]):
    """Computes pairs on a device; a subclass sets the tokenizer, and says how a batch is scored."""

    section = "rerank"
    length_setting = "rerank.max_length"
    tokenizer: PairTokenizer

    def tensors(self, batch: TokenBatch) -> dict[str, torch.Tensor]:
        """The network's inputs, on the device."""
        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask}
        types = token_types(batch, self.tokenizer.template)
        if types is not None:
            inputs[TYPES] = types
        return {name: self.on_device(array) for name, array in inputs.items()}

    @override
    def finish(self, count: int, computed: Float32) -> Float32:
        return computed


class Classifier(TorchPairs):
    """A network of transformers' `…ForSequenceClassification`, with one score."""

    network: PreTrainedModel

    def use(self, network: PreTrainedModel) -> None:
        """Take a loaded network; where its head reads the first token, the last layer computes no other."""
        self.network = self.place(network)
        limit_last_layer_to_first_token(self.network.base_model)

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        import torch

        self.masks.padded = not batch.mask.all()
        with torch.inference_mode():
            logits: torch.Tensor = self.network(**self.tensors(batch), return_dict=True).logits.float()
            return logits.reshape(len(batch.rows))


def load(settings: RerankSettings, model: ResolvedReranker, prepared: Path | None) -> BatchedScorer:
    """A CrossEncoder of sentence-transformers."""
    with fitting(model, "rerank"):
        return BatchedScorer(_CrossEncoder(model), settings.batch_size)


class _CrossEncoder(Classifier):
    """A CrossEncoder that takes token ids; its activation is the one that the model's files name."""

    def __init__(self, model: ResolvedReranker) -> None:
        super().__init__(model)
        folder = model.files.folder()
        with loading(model.name, "sentence_transformers"):
            encoder = _load(model, folder, self.dtype)
        check_labels(model.name, encoder.num_labels)
        self.activation = encoder.activation_fn
        fast = model.tokenizer.of_library(encoder.tokenizer)
        template = template_of(fast)
        if TYPES not in encoder.tokenizer.model_input_names:
            template = template._replace(typed=False)
        self.tokenizer = PairTokenizer(fast, template, model.max_length - template.size)
        self.use(encoder.model)

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        import torch

        logits = super().compute(batch)
        # an activation may make a plausible score of an infinite logit: a NaN stays one, and is refused later
        scores: torch.Tensor = self.activation(torch.where(logits.isfinite(), logits, torch.nan))
        return scores


def _load(model: ResolvedReranker, folder: Path, dtype: torch.dtype) -> CrossEncoder:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(
        str(folder),
        device=model.device,
        max_length=model.max_length,
        local_files_only=True,
        trust_remote_code=model.trust_remote_code,
        model_kwargs={"dtype": dtype},
    )
