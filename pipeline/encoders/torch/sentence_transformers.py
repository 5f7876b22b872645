"""The `sentence-transformers` backend: a model's own chain of modules, run by that library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from pipeline.config.model import SentenceTransformersSettings
from pipeline.encoders.base import Opener
from pipeline.encoders.batching import Backend
from pipeline.encoders.torch.backend import TorchBackend
from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.models.model import Model
from pipeline.models.tokenizer import checked, fast_tokenizer

if TYPE_CHECKING:
    import torch


class SentenceTransformersOpener(Opener[SentenceTransformersSettings, Model, Backend]):
    """The classes of sentence-transformers for each output."""

    def load(self, settings: SentenceTransformersSettings, model: Model, prepared: Path | None) -> Backend:
        """Load the model for its output."""
        from pipeline.encoders.torch.multi_vector_encoder import MultiVectorEncoderBackend
        from pipeline.encoders.torch.sparse_encoder import SparseEncoderBackend

        loads: dict[str, Callable[[Model], Backend]] = {
            "dense": SentenceTransformersBackend,
            "sparse": SparseEncoderBackend,
            "multivector": MultiVectorEncoderBackend,
        }
        return loads[model.output](model)


class SentenceTransformersBackend(TorchBackend):
    """A SentenceTransformer that takes token ids: Transformer, Pooling, Dense, Normalize, as it declares."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        folder = model.files.folder()
        with explain_loading_errors(model, "sentence_transformers"):
            self.network = _load(model, folder, self.dtype)
        first = self.network[0]
        self.is_static = not hasattr(first, "auto_model")
        if self.is_static:
            self.tokenizer = checked(first.tokenizer, model.name)
            self.tokenizer.post_processor = None  # a mean of word vectors takes no special tokens
        else:
            refuse_missing_weights(model, folder, first.auto_model)
            self.tokenizer = fast_tokenizer(model.name, first.tokenizer)
        self.dimension = int(self.network.get_embedding_dimension())

    @override
    def vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.is_static:
            lengths = mask.sum(1)
            features = {"input_ids": ids[mask.bool()], "offsets": lengths.cumsum(0) - lengths}
        else:
            features = {"input_ids": ids, "attention_mask": mask}
        vectors: torch.Tensor = self.network(features)["sentence_embedding"]
        return vectors


def _load(model: Model, folder: Path, dtype: torch.dtype) -> Any:
    """The SentenceTransformer, with the pooling of `model`, and without normalization at its end."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    network = SentenceTransformer(
        str(folder),
        device=model.device,
        local_files_only=True,
        trust_remote_code=model.trust_remote_code,
        model_kwargs={"dtype": dtype},
    )
    network.truncate_dim = None  # vectors are kept whole, see `pipeline.storage.vector_forms`
    pooling = {"cls": "cls", "mean": "mean", "last_token": "lasttoken"}.get(model.pooling)
    for module in network:
        if isinstance(module, Pooling) and pooling:
            module.pooling_mode = pooling
    if isinstance(network[-1], Normalize):
        del network[-1]
    return network.to(dtype).eval()
