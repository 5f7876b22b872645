"""The `sentence-transformers` backend: a model's own chain of modules, whatever that library loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.encoders.torch.backend import TorchBackend
from pipeline.models.loading import fast_tokenizer, guarded, refuse_missing
from pipeline.models.model import Model

if TYPE_CHECKING:
    import torch


class SentenceTransformersBackend(TorchBackend):
    """A SentenceTransformer that takes token ids: Transformer, Pooling, Dense, Normalize, as it declares.

    Args:
        model: What to load and how.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        folder = model.files.folder()
        with guarded(model, "sentence_transformers"):
            self.network = _load(model, folder, self.dtype)
        first = self.network[0]
        self.is_static = not hasattr(first, "auto_model")
        if self.is_static:
            self.tokenizer = first.tokenizer
            self.tokenizer.post_processor = None  # a bag of words has no special tokens
        else:
            refuse_missing(model, folder, first.auto_model)
            self.tokenizer = fast_tokenizer(model, first.tokenizer)
        self.dimension = int(self.network.get_embedding_dimension())

    def vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See `TorchBackend.vectors`."""
        if self.is_static:
            lengths = mask.sum(1)
            features = {"input_ids": ids[mask.bool()], "offsets": lengths.cumsum(0) - lengths}
        else:
            features = {"input_ids": ids, "attention_mask": mask}
        vectors: torch.Tensor = self.network(features)["sentence_embedding"]
        return vectors


def _load(model: Model, folder: Path, dtype: torch.dtype) -> Any:
    """The SentenceTransformer, pooling and normalizing as `model` says."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    network = SentenceTransformer(
        str(folder),
        device=model.device,
        local_files_only=True,
        trust_remote_code=model.trust_remote_code,
        model_kwargs={"dtype": dtype},
    )
    network.truncate_dim = None  # cut where all backends' vectors are
    wanted = {"cls": "cls", "mean": "mean", "last_token": "lasttoken"}.get(model.pooling)
    for module in network:
        if isinstance(module, Pooling) and wanted:
            module.pooling_mode = wanted
    if not model.normalize and isinstance(network[-1], Normalize):
        del network[-1]
    return network.to(dtype).eval()
