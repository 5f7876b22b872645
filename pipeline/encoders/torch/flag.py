"""The `flag` backend: the model as FlagEmbedding loads and pools it, on CPU or GPU."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from pipeline.core.errors import InputError
from pipeline.core.records import Float32, RaggedRows
from pipeline.encoders.torch import attention
from pipeline.encoders.torch.backend import (
    DeviceBatch,
    TorchBackend,
    open_backend,
    packed_tokens,
    unpacked_tokens,
)
from pipeline.encoders.torch.loading import (
    largest_weights,
    loading,
    read_head,
    refuse_missing_heads,
    unused_tokens,
)
from pipeline.models.model import ResolvedModel

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

M3 = "encoder-only-m3"  # FlagEmbedding's name of its class


def load(model: ResolvedModel, prepared: Path | None = None) -> TorchBackend:
    """Dense vectors of any encoder; word weights and token vectors of BGE-M3."""
    return open_backend(FlagBackend if model.output == "dense" else M3Backend, model)


class _Network(TorchBackend):
    """A network of transformers that FlagEmbedding has loaded.

    Attributes:
        unpadded: Whether batches are computed without padding.
    """

    network: PreTrainedModel
    unpadded = False

    def __init__(self, model: ResolvedModel, model_class: str) -> None:
        """Load the model in one of FlagEmbedding's classes."""
        folder = model.files.folder()
        with loading(model):
            from FlagEmbedding import FlagAutoModel

            head = read_head(folder, "multivector") if model_class == M3 else None
            self.flag = FlagAutoModel.from_finetuned(
                str(folder),
                model_class=model_class,
                normalize_embeddings=False,
                use_fp16=model.precision == "fp16",
                use_bf16=model.precision == "bf16",
                devices=[model.device],
                pooling_method=model.pooling or "cls",
                trust_remote_code=model.trust_remote_code,
                query_instruction_format="{}{}",
                **({"colbert_dim": len(head["weight"])} if head is not None else {}),
            )
            super().__init__(model, self.flag.model)
        self.tokenizer = model.tokenizer.of_library(self.flag.tokenizer)

    @abstractmethod
    def pooled(self, hidden: torch.Tensor, texts: DeviceBatch) -> torch.Tensor:
        """The rows of last hidden states [b, tokens, width], or [b, 1, width] of first tokens alone."""

    @override
    def rows(self, texts: DeviceBatch) -> torch.Tensor:
        import torch

        if self.unpadded:
            return self.pooled(attention.hidden_states(self.network, texts.batch, self.on_device), texts)
        chosen, adapters = {}, self.model.card.task_adapters
        if adapters:  # one for each text
            numbers = torch.full(
                (len(texts.ids),), adapters[self.role], dtype=torch.int32, device=self.device
            )
            chosen = {"adapter_mask": numbers}
        inputs = {"input_ids": texts.ids, "attention_mask": texts.mask, **chosen}
        return self.pooled(self.network(**inputs, return_dict=True)[0], texts)

    def unpad(self) -> None:
        """Compute batches without padding from now on."""
        from transformers import AttentionInterface

        AttentionInterface.register(attention.NAME, attention.attend)
        self.network.set_attn_implementation(attention.NAME)
        self.unpadded, self.width_multiple, self.computes_padding = True, 1, False


class FlagBackend(_Network):
    """A FlagEmbedding model that takes token ids.

    FlagEmbedding's classes choose the architecture, load the weights and pool. Its encode loop is not used:
    batches come from `pipeline.encoders.batching`.
    """

    def __init__(self, model: ResolvedModel) -> None:
        # chosen by the pooling, which is in the key, and not by the model's name as FlagEmbedding does it:
        # bge-m3's dense vectors are an encoder's CLS, bge-en-icl's without examples a decoder's last token
        of_decoder = model.pooling == "last_token"
        super().__init__(model, "decoder-only-base" if of_decoder else "encoder-only-base")
        self.network = self.flag.model
        self.network.config.use_cache = False  # a decoder would keep keys and values for text generation
        if model.pooling == "cls":
            attention.limit_last_layer_to_first_token(self.network)
        if self.device.type == "cuda" and attention.runs_without_padding(self):
            self.unpad()
        width = getattr(self.network.config, "hidden_size", None)
        if not isinstance(width, int):
            raise InputError(
                f"model '{model.name}' is a {type(self.network).__name__}: no network of texts alone",
                allowed="encoders and decoders of texts",
                fix="choose another model",
            )
        self.dimension = width

    @override
    def pooled(self, hidden: torch.Tensor, texts: DeviceBatch) -> torch.Tensor:
        import torch

        vectors: torch.Tensor
        if self.model.pooling == "last_token":  # `pooling` of FlagEmbedding's decoder classes is a function
            vectors = hidden[torch.arange(len(hidden), device=self.device), texts.mask.sum(1) - 1]
        else:
            mask = texts.mask
            if skipped := self.model.skipped.get(self.role):
                mask = mask.clone()
                mask[:, :skipped] = 0
            vectors = self.flag.pooling(hidden, mask)
        return vectors


class M3Backend(_Network):
    """BGE-M3 with the head of one output: weights of words, or a vector for each token but the first, CLS."""

    def __init__(self, model: ResolvedModel) -> None:
        refuse_missing_heads(model)
        super().__init__(model, M3)
        module = self.flag.model
        self.network = module.model
        if self.device.type == "cuda" and attention.runs_without_padding(self):
            self.unpad()
        self.unused = unused_tokens(self.flag.tokenizer)
        self.linear = module.sparse_linear if model.output == "sparse" else module.colbert_linear

    @override
    def pooled(self, hidden: torch.Tensor, texts: DeviceBatch) -> torch.Tensor:
        """Packed token vectors; or tokens, as bits of int32, and their weights, float32 [b, 2, tokens]."""
        import torch

        if self.model.output == "multivector":
            return packed_tokens(self.linear(hidden[:, 1:]), texts.mask[:, 1:], self.model.normalize)
        weights = torch.relu(self.linear(hidden)).squeeze(-1).float() * texts.mask
        return torch.stack([texts.ids.to(torch.int32).view(torch.float32), weights], dim=1)

    @override
    def finish(self, count: int, computed: Float32) -> RaggedRows:
        """Of equal tokens the largest weight counts; special tokens have none."""
        if self.model.output == "multivector":
            return unpacked_tokens(computed)
        words = np.ascontiguousarray(computed[:, 0]).view(np.int32)
        weights = computed[:, 1]
        rows, places = np.nonzero(weights > 0)
        return largest_weights(rows, words[rows, places], weights[rows, places], self.unused, len(computed))
