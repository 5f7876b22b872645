"""The `sentence-transformers` backend for sparse output, and how word weights travel to the CPU."""

from __future__ import annotations

import copy
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from pipeline.core.records import Float32, Ragged
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.torch.backend import TorchRunner
from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.models.model import Model, Role
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer


LOGITS = 1 << 21  # numbers that the head computes at a time: 8 MB


class WordWeightBackend(TorchRunner):
    """A torch model with the interface `batching.Backend`; a subclass loads it and computes weights."""

    tokenizer: Tokenizer

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.model = model

    @abstractmethod
    def weights(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The weights [b, words] of a batch, mostly 0; both arguments are int64 [b, tokens] on the device."""

    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """For each row its number of words, then the words of all rows, then their weights.

        One tensor of float32 numbers, as a batch is fetched in one copy; the bits of the first two are int32.
        """
        import torch

        with torch.inference_mode():
            weights = self.weights(self.on_device(batch.ids), self.on_device(batch.mask)).float()
            rows, words = weights.nonzero(as_tuple=True)
            counts = torch.bincount(rows, minlength=len(batch.rows))
            numbers = torch.cat([counts, words]).to(torch.int32).view(torch.float32)
            return torch.cat([numbers, weights[rows, words]])

    @override
    def finish(self, count: int, computed: Float32) -> Ragged:
        return _unpacked(computed, count)


def _unpacked(packed: Float32, count: int) -> Ragged:
    """The `count` rows of what `compute` returns."""
    entries = (len(packed) - count) // 2
    lengths, words = np.split(packed[: count + entries].view(np.int32), [count])
    return Ragged(np.cumsum(lengths, dtype=np.int64), (words, packed[count + entries :]))


class SpladeHead:
    """A masked language model whose last layer gives, for each word, its largest logit over a text's tokens.

    That layer makes a number for each token and each word, of which a text keeps one for each word. Here it
    is computed for some words at a time, and only the largest are kept, so a batch needs `LOGITS` numbers.

    Args:
        network: A masked language model of transformers; its last layer is taken out of it.
    """

    def __init__(self, network: Any) -> None:
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
        made = hidden.new_empty((len(ids), len(weight)))
        step = max(LOGITS // (hidden.shape[0] * hidden.shape[1]), 64)
        for start in range(0, len(weight), step):
            part = slice(start, start + step)
            logits = torch.nn.functional.linear(hidden, weight[part], None if bias is None else bias[part])
            torch.amax(logits, 1, out=made[:, part])
        return made


ROUTES: dict[Role, str] = {"queries": "query", "passages": "document"}
"""The names that sentence-transformers gives to the chains of a model that has two."""


class SparseEncoderBackend(WordWeightBackend):
    """A SparseEncoder that takes token ids; by itself that for passages."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        folder = model.files.folder()
        with explain_loading_errors(model, "sentence_transformers"):
            self.encoder = _load(model, folder, self.dtype)
        self.chains = {role: _chain(self.encoder, role) for role in ROUTES}
        self.heads: dict[int, SpladeHead] = {}
        for role, chain in self.chains.items():
            network = getattr(chain[0], "auto_model", None)
            if network is not None and id(network) not in self.heads:
                refuse_missing_weights(model, folder / model.files.network_folder(ROUTES[role]), network)
                if _is_splade(chain):
                    self.heads[id(network)] = SpladeHead(network)
        self._use("passages")

    def for_role(self, role: Role) -> SparseEncoderBackend:
        """The model for one of the roles."""
        chosen = copy.copy(self)
        chosen._use(role)
        return chosen

    def _use(self, role: Role) -> None:
        """Compute texts by the chain of a role."""
        self.chain = self.chains[role]
        self.tokenizer = fast_tokenizer(self.model.name, self.chain[0].tokenizer)
        if not hasattr(self.chain[0], "auto_model"):
            self.tokenizer = copy.deepcopy(self.tokenizer)
            self.tokenizer.post_processor = None  # words are looked up, special tokens are not

    @override
    def weights(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        import torch
        from sentence_transformers.util import select_max_active_dims

        head = self.heads.get(id(getattr(self.chain[0], "auto_model", None)))
        if head is None:
            features: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
            for module in self.chain:
                features = module(features)
            weights: torch.Tensor = features["sentence_embedding"]
        else:
            weights = head.largest(ids, mask).relu_().log1p_()
            if self.chain[1].activation_function == "log1p_relu":
                weights.log1p_()
        if self.encoder.max_active_dims is not None:
            weights = select_max_active_dims(weights, max_active_dims=self.encoder.max_active_dims)
        if self.encoder.similarity_fn_name == "cosine":
            weights = torch.nn.functional.normalize(weights, dim=-1)
        return weights


def _load(model: Model, folder: Path, dtype: torch.dtype) -> Any:
    from sentence_transformers import SparseEncoder

    encoder = SparseEncoder(
        str(folder),
        device=model.device,
        local_files_only=True,
        trust_remote_code=model.trust_remote_code,
        model_kwargs={"dtype": dtype},
    )
    return encoder.to(dtype).eval()


def _chain(encoder: Any, role: Role) -> list[Any]:
    """The modules that texts of a role go through."""
    modules = list(encoder)
    if type(modules[0]).__name__ != "Router":
        return modules
    routes = modules[0].sub_modules
    route = ROUTES[role] if ROUTES[role] in routes else modules[0].default_route
    return [*routes[route], *modules[1:]]


def _is_splade(chain: list[Any]) -> bool:
    """Whether a chain is a masked language model and the largest of its logits."""
    names = [type(module).__name__ for module in chain]
    splade = names in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"])
    return splade and chain[1].pooling_strategy == "max" and bool(chain[0].auto_model.get_output_embeddings())
