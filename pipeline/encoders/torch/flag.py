"""The `flag` backend: the model as FlagEmbedding loads and pools it, on CPU or GPU."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from pipeline.core.errors import InputError
from pipeline.core.records import Float32, RaggedRows
from pipeline.encoders.torch import attention
from pipeline.encoders.torch.backend import (
    DeviceBatch,
    TorchBackend,
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
    from FlagEmbedding import AbsEmbedder
    from transformers import PreTrainedModel


def load(model: ResolvedModel, prepared: Path | None = None) -> TorchBackend:
    """Dense vectors of any encoder; word weights and token vectors of BGE-M3."""
    folder, dense = model.files.folder(), model.output == "dense"
    with loading(model):
        from FlagEmbedding import FlagAutoModel

        # chosen by the pooling, which is in the key, and not by the model's name as FlagEmbedding does it:
        # bge-m3's dense vectors are an encoder's CLS, bge-en-icl's without examples a decoder's last token
        base = "decoder-only-base" if model.pooling == "last_token" else "encoder-only-base"
        flag = FlagAutoModel.from_finetuned(
            str(folder),
            use_fp16=model.precision == "fp16",
            use_bf16=model.precision == "bf16",
            devices=[model.device],
            pooling_method=model.pooling or "cls",
            trust_remote_code=model.trust_remote_code,
            **({"model_class": base} if dense else _m3_class(model, folder)),
        )
        backend = FlagBackend(model, flag) if dense else M3Backend(model, flag)
    backend.tokenizer = model.tokenizer.of_library(flag.tokenizer)
    if backend.device.type == "cuda" and attention.runs_without_padding(backend):
        backend.unpad()
    return backend


def _m3_class(model: ResolvedModel, folder: Path) -> dict[str, Any]:
    """FlagEmbedding's class of BGE-M3, and the width of its head for token vectors."""
    refuse_missing_heads(model)
    return {"model_class": "encoder-only-m3", "colbert_dim": len(read_head(folder, "multivector")["weight"])}


class _Network(TorchBackend):
    """A network of transformers that FlagEmbedding has loaded.

    Attributes:
        unpadded: Whether batches are computed without padding.
    """

    network: PreTrainedModel
    unpadded = False

    @abstractmethod
    def pooled(self, hidden: torch.Tensor, texts: DeviceBatch) -> torch.Tensor:
        """The rows of last hidden states [b, tokens, width], or [b, 1, width] of first tokens alone."""

    @override
    def rows(self, texts: DeviceBatch) -> torch.Tensor:
        import torch

        if self.unpadded:
            return self.pooled(attention.hidden_states(self.network, texts.batch, self.on_device), texts)
        inputs = {"input_ids": texts.ids, "attention_mask": texts.mask}
        if adapters := self.model.card.task_adapters:  # one for each text
            number = adapters[texts.batch.role]
            inputs["adapter_mask"] = texts.ids.new_full((len(texts.ids),), number, dtype=torch.int32)
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

    def __init__(self, model: ResolvedModel, flag: AbsEmbedder) -> None:
        super().__init__(model, flag.model)
        self.flag, self.network = flag, flag.model
        self.network.config.use_cache = False  # a decoder would keep keys and values for text generation
        if model.pooling == "cls":
            attention.limit_last_layer_to_first_token(self.network)
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
            if skipped := self.model.skipped.get(texts.batch.role):
                mask = mask.clone()
                mask[:, :skipped] = 0
            vectors = self.flag.pooling(hidden, mask)
        return vectors


class M3Backend(_Network):
    """BGE-M3 with the head of one output: weights of words, or a vector for each token but the first, CLS."""

    def __init__(self, model: ResolvedModel, flag: AbsEmbedder) -> None:
        module = flag.model
        super().__init__(model, module)
        self.network = module.model
        self.unused = unused_tokens(flag.tokenizer)
        self.linear = module.sparse_linear if model.output == "sparse" else module.colbert_linear

    @override
    def pooled(self, hidden: torch.Tensor, texts: DeviceBatch) -> torch.Tensor:
        """Packed token vectors; or tokens, as bits of int32, and their weights, float32 [b, 2, tokens]."""
        import torch

        if self.model.output == "multivector":
            vectors = self.linear(hidden[:, 1:]).float()
            return packed_tokens(torch.nn.functional.normalize(vectors, dim=-1), texts.mask[:, 1:])
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
