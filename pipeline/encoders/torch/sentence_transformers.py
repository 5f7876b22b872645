"""The `sentence-transformers` backend: a model's own chain of modules, run by that library."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from typing_extensions import override

from pipeline.core.records import Float32, RaggedRows, Role
from pipeline.encoders.torch.backend import (
    DTYPES,
    DeviceBatch,
    TorchBackend,
    packed_tokens,
    unpacked_tokens,
)
from pipeline.encoders.torch.checks import tokens_embedded
from pipeline.encoders.torch.loading import loading
from pipeline.models.files import damaged
from pipeline.models.late_interaction import late_interaction
from pipeline.models.model import ResolvedModel
from pipeline.models.text_settings import TASKS

if TYPE_CHECKING:
    import torch
    from sentence_transformers import MultiVectorEncoder, SentenceTransformer, SparseEncoder
    from sentence_transformers.base.modules import Module
    from transformers import PreTrainedModel


def load(model: ResolvedModel, prepared: Path | None = None) -> TorchBackend:
    """A model in the class of sentence-transformers for its output."""
    classes: dict[str, Callable[[ResolvedModel], TorchBackend]] = {
        "dense": SentenceTransformersBackend,
        "sparse": SparseEncoderBackend,
        "multivector": MultiVectorEncoderBackend,
    }
    return classes[model.output](model)


class _LibraryBackend(TorchBackend):
    """A model in a class of sentence-transformers, in its precision."""

    def __init__(self, model: ResolvedModel, encoder: type[Any]) -> None:
        import torch

        with loading(model):
            self.network = encoder(
                str(model.files.folder()),
                device=model.device,
                local_files_only=True,
                trust_remote_code=model.trust_remote_code,
                model_kwargs={"dtype": getattr(torch, DTYPES[model.precision])},
            )
            super().__init__(model, self.network)


class SentenceTransformersBackend(_LibraryBackend):
    """A SentenceTransformer that takes token ids: Transformer, Pooling, Dense, Normalize, as it declares."""

    network: SentenceTransformer

    def __init__(self, model: ResolvedModel) -> None:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

        super().__init__(model, SentenceTransformer)
        mode = {"cls": "cls", "mean": "mean", "last_token": "lasttoken"}.get(model.pooling)
        for module in self.network:
            if isinstance(module, Pooling) and mode:
                module.pooling_mode = mode
        self.network.truncate_dim = None  # stored vectors are cut and normalized
        if isinstance(self.network[-1], Normalize):
            del self.network[-1]
        first = self.network[0]
        self.is_static = not hasattr(first, "auto_model")
        self.tokenizer = model.tokenizer.of_library(first.tokenizer)
        self.dimension = int(self.network.get_embedding_dimension())
        if model.skipped:
            self.network.set_pooling_include_prompt(False)

    @override
    def rows(self, texts: DeviceBatch) -> torch.Tensor:
        if self.is_static:
            lengths = texts.mask.sum(1)
            features: dict[str, Any] = {
                "input_ids": texts.ids[texts.mask.bool()],
                "offsets": lengths.cumsum(0) - lengths,
            }
        else:
            features = {"input_ids": texts.ids, "attention_mask": texts.mask}
        if skipped := self.model.skipped.get(texts.batch.role):
            features["prompt_length"] = skipped
        vectors: torch.Tensor = self.network(features)["sentence_embedding"]
        return vectors


LOGITS = {"cpu": 1 << 21, "cuda": 1 << 28, "mps": 1 << 21}
"""Numbers that the head of a SPLADE computes at a time: on a CPU 8 MB of fp32, which its cache may hold; on a
GPU 1 GB, so that a batch takes few large products."""


class SpladeHead:
    """A masked language model whose last layer gives, for each word, its largest logit over a text's tokens.

    That layer makes a number for each token and each word, of which a text keeps one for each word. Here it
    is computed for some words at a time, and only the largest are kept, so a batch needs few numbers.
    """

    def __init__(self, network: PreTrainedModel) -> None:
        import torch

        self.network = network
        self.last = network.get_output_embeddings()
        places = [
            (module, name)
            for module in network.modules()
            for name, child in module.named_children()
            if child is self.last
        ]
        for module, name in places:
            setattr(module, name, torch.nn.Identity())

    def largest(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The largest logits [b, words] of a batch, int64 [b, tokens] with its mask."""
        import torch

        hidden = self.network(input_ids=ids, attention_mask=mask, return_dict=True).logits
        hidden = torch.where(mask[..., None].bool(), hidden, hidden[:, :1])  # padding repeats the first token
        weight, bias = self.last.weight, self.last.bias
        largest = hidden.new_empty((len(ids), len(weight)))
        step = max(LOGITS[hidden.device.type] // (hidden.shape[0] * hidden.shape[1]), 64)
        for start in range(0, len(weight), step):
            part = slice(start, start + step)
            logits = torch.nn.functional.linear(hidden, weight[part], None if bias is None else bias[part])
            torch.amax(logits, 1, out=largest[:, part])
        return largest


class SparseEncoderBackend(_LibraryBackend):
    """A SparseEncoder that takes token ids; by itself that for passages."""

    network: SparseEncoder

    def __init__(self, model: ResolvedModel) -> None:
        from sentence_transformers import SparseEncoder

        super().__init__(model, SparseEncoder)
        self.chains = {role: _chain(self.network, role) for role in TASKS}
        self.heads: dict[int, SpladeHead] = {}
        for chain in self.chains.values():
            network = getattr(chain[0], "auto_model", None)
            if network is not None and id(network) not in self.heads and _is_splade(chain):
                self.heads[id(network)] = SpladeHead(network)
        self._use("passages")

    def for_role(self, role: Role) -> Self:
        """The model for one of the roles."""
        chosen = copy.copy(self)
        chosen._use(role)
        return chosen

    def _use(self, role: Role) -> None:
        """Compute texts by the chain of a role."""
        self.chain = self.chains[role]
        self.embedded = tokens_embedded(self.chain[0])
        tokenizer = self.chain[0].tokenizer
        if not hasattr(self.chain[0], "auto_model"):
            tokenizer = copy.deepcopy(tokenizer)  # its special tokens are taken away
        self.tokenizer = self.model.tokenizers[role].of_library(tokenizer)

    @override
    def rows(self, texts: DeviceBatch) -> torch.Tensor:
        """For each text its number of words, then the words of all texts, then their weights.

        All are float32; the bits of the first two are int32.
        """
        import torch

        weights = self._weights(texts.ids, texts.mask).float()
        rows, words = weights.nonzero(as_tuple=True)
        counts = torch.bincount(rows, minlength=len(texts.ids))
        numbers = torch.cat([counts, words]).to(torch.int32).view(torch.float32)
        return torch.cat([numbers, weights[rows, words]])

    @override
    def finish(self, count: int, computed: Float32) -> RaggedRows:
        entries = (len(computed) - count) // 2
        lengths, words = np.split(computed[: count + entries].view(np.int32), [count])
        return RaggedRows(np.cumsum(lengths, dtype=np.int64), (words, computed[count + entries :]))

    def _weights(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The weights [b, words] of a batch, mostly 0."""
        import torch
        from sentence_transformers.util import select_max_active_dims

        head = self.heads.get(id(getattr(self.chain[0], "auto_model", None)))
        if head is None:
            features = {"input_ids": ids, "attention_mask": mask}
            for module in self.chain:
                features = module(features)
            weights = features["sentence_embedding"]
        else:
            weights = head.largest(ids, mask).relu_().log1p_()
            if self.chain[1].activation_function == "log1p_relu":
                weights.log1p_()
        if self.network.max_active_dims is not None:
            weights = select_max_active_dims(weights, max_active_dims=self.network.max_active_dims)
        if self.network.similarity_fn_name == "cosine":
            weights = torch.nn.functional.normalize(weights, dim=-1)
        return weights


def _chain(encoder: SparseEncoder, role: Role) -> Sequence[Module]:
    """The modules that texts of a role go through."""
    modules = list(encoder)
    if type(modules[0]).__name__ != "Router":
        return modules
    routes = modules[0].sub_modules
    route = TASKS[role] if TASKS[role] in routes else modules[0].default_route
    return [*routes[route], *modules[1:]]


def _is_splade(chain: Sequence[Module]) -> bool:
    """Whether a chain is a masked language model and the largest of its logits."""
    names = [type(module).__name__ for module in chain]
    splade = names in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"])
    return splade and chain[1].pooling_strategy == "max" and bool(chain[0].auto_model.get_output_embeddings())


class MultiVectorEncoderBackend(_LibraryBackend):
    """A MultiVectorEncoder that takes token ids, of queries or of passages."""

    network: MultiVectorEncoder

    def __init__(self, model: ResolvedModel) -> None:
        from sentence_transformers import MultiVectorEncoder

        super().__init__(model, MultiVectorEncoder)
        self.tokenizer = model.tokenizer.of_library(self.network[0].tokenizer)
        self.expansion = self.network[0].query_expansion
        self._check_markers()

    @override
    def rows(self, texts: DeviceBatch) -> torch.Tensor:
        features = {"input_ids": texts.ids, "attention_mask": texts.mask}
        role = texts.batch.role
        if role == "queries" and self.expansion is not None:
            self.masks.padded = True
            features = self._expanded(texts.ids, texts.mask)
        features = self.network(features, task=TASKS[role])
        return packed_tokens(features["token_embeddings"], features["attention_mask"])

    @override
    def finish(self, count: int, computed: Float32) -> RaggedRows:
        return unpacked_tokens(computed)

    def _expanded(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """A batch of queries filled up with the expansion's token, as `Transformer.preprocess` does it."""
        import torch

        missing = max(self.expansion["length"] - ids.shape[1], 0)
        ids, mask = (torch.nn.functional.pad(array, (0, missing)) for array in (ids, mask))
        places = torch.arange(ids.shape[1], device=ids.device) < self.expansion["length"]
        added = (mask == 0) & places
        tokenizer, token = self.network[0].tokenizer, self.expansion["token"]
        if token is not None:
            number = tokenizer.convert_tokens_to_ids(token)
        else:
            number = tokenizer.eos_token_id if tokenizer.mask_token_id is None else tokenizer.mask_token_id
        if number is not None:
            ids = ids.masked_fill(added, number)
        if self.expansion["attend"]:
            mask = mask.masked_fill(added, 1)
        return {"input_ids": ids, "attention_mask": mask, "query_expansion_positions": added}

    def _check_markers(self) -> None:
        """Refuse a model in whose files sentence-transformers finds another use than is in the keys."""
        declared = late_interaction(self.model.card, self.model.name)
        loaded = {role: self.network.prompts.get(task) or "" for role, task in TASKS.items()}
        mean = self.network.similarity_fn_name == "meanmaxsim"
        if loaded != declared.prompts or mean != declared.mean:
            raise damaged(
                f"model '{self.model.name}': sentence-transformers puts {loaded} before texts, and its files "
                f"declare {declared.prompts}",
                "the same, in a layout of MultiVectorEncoder, PyLate or Stanford's ColBERT",
            )
