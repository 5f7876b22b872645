"""The `flag` backend: the model as FlagEmbedding loads and pools it, on CPU or GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from pipeline.config.model import FlagSettings
from pipeline.encoders.base import Opener
from pipeline.encoders.batching import Backend
from pipeline.encoders.torch.backend import TorchBackend
from pipeline.encoders.torch.loading import (
    explain_loading_errors,
    limit_last_layer_to_first_token,
    refuse_missing_weights,
)
from pipeline.models.model import Model
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch


class FlagOpener(Opener[FlagSettings, Model, Backend]):
    """Dense vectors of any encoder; word weights and token vectors of BGE-M3."""

    def load(self, settings: FlagSettings, model: Model, prepared: Path | None) -> Backend:
        """Load the model for its output."""
        from pipeline.encoders.torch.m3 import M3TokenVectors, M3Weights

        loads: dict[str, Callable[[Model], Backend]] = {
            "dense": FlagBackend, "sparse": M3Weights, "multivector": M3TokenVectors
        }  # fmt: skip
        return loads[model.output](model)


class FlagBackend(TorchBackend):
    """A FlagEmbedding model that takes token ids.

    FlagEmbedding's classes choose the architecture, load the weights and pool. Its encode loop is not used:
    batches come from `pipeline.encoders.batching`.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        folder = model.files.folder()
        with explain_loading_errors(model, "FlagEmbedding.inference.auto_embedder"):
            self.flag = _load(model, folder)
        refuse_missing_weights(model, folder, self.flag.model)
        self.network = self.flag.model.to(device=self.device, dtype=self.dtype).eval()
        self.network.config.use_cache = False  # a decoder would keep keys and values for text generation
        if model.pooling == "cls":
            limit_last_layer_to_first_token(self.network)
        self.tokenizer = fast_tokenizer(model.name, self.flag.tokenizer)
        self.dimension = int(self.network.config.hidden_size)

    @override
    def vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        import torch

        vectors: torch.Tensor
        hidden = self.network(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
        if self.model.pooling == "last_token":  # `pooling` of FlagEmbedding's decoder classes is a function
            vectors = hidden[torch.arange(len(hidden), device=self.device), mask.sum(1) - 1]
        else:
            vectors = self.flag.pooling(hidden, mask)
        return vectors


def _load(model: Model, folder: Path) -> Any:
    """The model in one of FlagEmbedding's classes, chosen by its pooling, which is in the key, not its name.

    That suits bge-m3, whose dense vectors are an encoder's CLS, and bge-en-icl without examples, whose
    vectors are a decoder's last token.
    """
    from FlagEmbedding import FlagAutoModel

    return FlagAutoModel.from_finetuned(
        str(folder),
        model_class="decoder-only-base" if model.pooling == "last_token" else "encoder-only-base",
        normalize_embeddings=False,
        use_fp16=model.precision == "fp16",
        use_bf16=model.precision == "bf16",
        devices=[model.device],
        pooling_method=model.pooling,
        trust_remote_code=model.trust_remote_code,
        query_instruction_format="{}{}",
    )
