"""The `sentence-transformers` backend for sparse output: SPLADE-like and inference-free models.

A model without files of sentence-transformers is a SPLADE if it is a masked language model, as there. An
inference-free model has two chains of modules: that of queries looks the weight of each word up.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.encoders.torch.word_weights import SpladeHead, WordWeightBackend
from pipeline.models.model import Model, Role
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch

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
        """See `batching.RoleDependent`."""
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

    def weights(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See `WordWeightBackend.weights`."""
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
