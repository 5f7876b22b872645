"""The `flag` backend: the model as FlagEmbedding loads and pools it, on CPU or GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.encoders.torch.backend import TorchBackend
from pipeline.encoders.torch.first_token import last_layer_on_first_token
from pipeline.models.loading import fast_tokenizer, guarded, refuse_missing
from pipeline.models.model import Model

if TYPE_CHECKING:
    import torch


class FlagBackend(TorchBackend):
    """A FlagEmbedding model that takes token ids.

    FlagEmbedding's own classes choose the architecture, load the weights and pool; batches come from
    `pipeline.encoders.batching` instead of its encode loop.

    Args:
        model: What to load and how.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        folder = model.files.folder()
        with guarded(model, "FlagEmbedding.inference.auto_embedder"):
            self.flag = _load(model, folder)
        refuse_missing(model, folder, self.flag.model)
        self.network = self.flag.model.to(device=self.device, dtype=self.dtype).eval()
        self.network.config.use_cache = False  # a decoder would keep what only generation needs
        if model.pooling == "cls":
            last_layer_on_first_token(self.network)
        self.tokenizer = fast_tokenizer(model, self.flag.tokenizer)
        self.dimension = int(self.network.config.hidden_size)

    def vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See `TorchBackend.vectors`."""
        import torch

        vectors: torch.Tensor
        hidden = self.network(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
        if self.model.pooling == "last_token":  # a function in FlagEmbedding's decoder-only classes
            vectors = hidden[torch.arange(len(hidden), device=self.device), mask.sum(1) - 1]
        else:
            vectors = self.flag.pooling(hidden, mask)
        return vectors


def _load(model: Model, folder: Path) -> Any:
    """The model as one of FlagEmbedding's classes, chosen by what stands in the key, not by its name.

    Dense vectors of bge-m3 are the encoder's CLS, and those of bge-en-icl without examples the last token.
    """
    from FlagEmbedding import FlagAutoModel

    return FlagAutoModel.from_finetuned(
        str(folder),
        model_class="decoder-only-base" if model.pooling == "last_token" else "encoder-only-base",
        normalize_embeddings=model.normalize,
        use_fp16=model.precision == "fp16",
        use_bf16=model.precision == "bf16",
        devices=[model.device],
        pooling_method=model.pooling,
        trust_remote_code=model.trust_remote_code,
        query_instruction_format="{}{}",
    )
