"""The `sentence-transformers` backend for multi-vector output, and how token vectors travel to the CPU."""

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
from pipeline.models.files import damaged
from pipeline.models.late_interaction import TASKS, read_late_interaction
from pipeline.models.model import Model, Role
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer


class TokenVectorBackend(TorchRunner):
    """A torch model with the interface `batching.Backend`; a subclass loads it and computes vectors."""

    tokenizer: Tokenizer

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.model = model

    @abstractmethod
    def token_vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The vectors [b, n, dimension] of a batch's tokens, and a mask [b, n] of those that are kept.

        Both arguments are int64 [b, tokens] on the device; n may be another number.
        """

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            vectors, kept = self.token_vectors(self.on_device(batch.ids), self.on_device(batch.mask))
            return packed(vectors, kept, self.model.normalize)

    @override
    def finish(self, count: int, computed: Float32) -> Ragged:
        return kept_vectors(computed)


def packed(vectors: torch.Tensor, kept: torch.Tensor, normalize: bool) -> torch.Tensor:
    """The vectors of a batch's tokens, float32 [b, n, dimension + 1]; the last number is 1 if kept.

    The arguments are what `TokenVectorBackend.token_vectors` returns, and whether to scale to length 1.
    """
    import torch

    vectors = vectors.float()
    if normalize:
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    return torch.cat([vectors, kept[..., None].float()], dim=-1)


def kept_vectors(tokens: Float32) -> Ragged:
    """The vectors that are kept, of what `packed` returns."""
    kept = tokens[..., -1] > 0
    return Ragged(np.cumsum(kept.sum(axis=1)), (tokens[kept][:, :-1],))


class MultiVectorEncoderBackend(TokenVectorBackend):
    """A MultiVectorEncoder that takes token ids, of queries or of passages."""

    role: Role = "passages"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        folder = model.files.folder()
        with explain_loading_errors(model, "sentence_transformers"):
            self.network = _load(model, folder, self.dtype)
        refuse_missing_weights(model, folder, self.network[0].auto_model)
        self.tokenizer = fast_tokenizer(model.name, self.network[0].tokenizer)
        self.expansion = self.network[0].query_expansion
        self._check_markers()

    def for_role(self, role: Role) -> MultiVectorEncoderBackend:
        """The model for one of the roles."""
        chosen = copy.copy(self)
        chosen.role = role
        return chosen

    @override
    def token_vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        if self.role == "queries" and self.expansion is not None:
            features = self._expanded(ids, mask)
        features = self.network(features, task=TASKS[self.role])
        return features["token_embeddings"], features["attention_mask"]

    def _expanded(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        """A batch of queries filled up with the expansion's token, as `Transformer.preprocess` does it."""
        import torch

        missing = max(self.expansion["length"] - ids.shape[1], 0)
        ids, mask = (torch.nn.functional.pad(each, (0, missing)) for each in (ids, mask))
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
        declared = read_late_interaction(self.model.files, self.model.name)
        found = {role: self.network.prompts.get(task) or "" for role, task in TASKS.items()}
        mean = self.network.similarity_fn_name == "meanmaxsim"
        if found != declared.prompts or mean != declared.mean:
            raise damaged(
                f"model '{self.model.name}': sentence-transformers puts {found} before texts, and its files "
                f"declare {declared.prompts}",
                "the same, in a layout of MultiVectorEncoder, PyLate or Stanford's ColBERT",
            )


def _load(model: Model, folder: Path, dtype: torch.dtype) -> Any:
    from sentence_transformers import MultiVectorEncoder

    network = MultiVectorEncoder(
        str(folder),
        device=model.device,
        local_files_only=True,
        trust_remote_code=model.trust_remote_code,
        model_kwargs={"dtype": dtype},
    )
    return network.to(dtype).eval()
