"""A resolved reranker: everything about it that shapes its scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pipeline.core.errors import InputError
from pipeline.models.files import Files


@dataclass(frozen=True)
class Reranker:
    """A config's reranker with every setting decided.

    Attributes:
        name: Its name in the config.
        files: Its folder, or its commit on the hub.
        precision: Number format of the computation: a CPU runs `fp16` as `fp32`, as FlagEmbedding does.
        device: `cpu` or `cuda:N`.
        pad_id: Id of the padding token.
        max_length: Tokens kept of a query and a passage together, at most as many as the model has positions.
        query_max_length: Tokens kept of a query; None is no limit of its own.
        trust_remote_code: Whether Python files that come with the model may run.
        config: Content of its `config.json`.
    """

    name: str
    files: Files
    precision: str
    device: str
    pad_id: int
    max_length: int
    query_max_length: int | None
    trust_remote_code: bool = False
    config: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def architecture(self) -> str:
        """The class of transformers, or of the model's own Python files, that it names first; or ''."""
        return next(iter(self.config.get("architectures") or []), "")

    def recipe(self) -> dict[str, Any]:
        """The model's part of the key of its scores."""
        return {
            "identity": self.files.identity,
            "precision": self.precision,
            "max_length": self.max_length,
            "query_max_length": self.query_max_length,
        }


def check_labels(name: str, labels: int) -> None:
    """Refuse a model that gives several values for a pair, as one that was trained for another task does."""
    if labels != 1:
        raise InputError(
            f"rerank.name: '{name}' gives {labels} values for a pair",
            allowed="a reranker, which gives one",
            fix="choose another model, such as BAAI/bge-reranker-base",
        )
