"""A resolved reranker: everything about it that shapes its scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pipeline.config.rerank import FlagRerankSettings, RerankSettings, ScorerSettings
from pipeline.core.errors import InputError
from pipeline.models.card import CONFIG_TYPES, max_positions
from pipeline.models.files import Files, find_model
from pipeline.models.json_types import SIZE
from pipeline.models.resolution import FindModel, choose_device, refuse_adapter
from pipeline.rerankers.http import ServedReranker

SCHEMA = 1  # of what is computed for a pair


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


def resolve(config: ScorerSettings, find: FindModel = find_model) -> Reranker | ServedReranker:
    """The reranker that a config names, without loading anything; `find` finds and hashes its files."""
    if not isinstance(config, RerankSettings):
        served: ServedReranker = config.open()
        return served
    device = choose_device(config.device, config.on_gpu)
    files = find(config.name, config.revision, config.trust_remote_code)
    refuse_adapter(config.name, files)
    described = files.read_json("config.json", **CONFIG_TYPES)
    limits = [config.max_length, max_positions(described)]
    query_max_length = None
    if not isinstance(config, FlagRerankSettings):  # only sentence-transformers reads the tokenizer's limit
        declared = files.read_json("tokenizer_config.json", model_max_length=SIZE).get("model_max_length")
        limits.append(int(declared or config.max_length))
    max_length = min(limits)
    if isinstance(config, FlagRerankSettings):
        query_max_length = config.query_max_length or max_length * 3 // 4
    model = Reranker(
        name=config.name,
        files=files,
        precision="fp32" if config.precision == "fp16" and device == "cpu" else config.precision,
        device=device,
        pad_id=max(int(described.get("pad_token_id") or 0), 0),
        max_length=max_length,
        query_max_length=query_max_length,
        trust_remote_code=config.trust_remote_code,
        config=described,
    )
    labels = (
        described.get("num_labels") or len(described.get("id2label") or {}) or 2
    )  # transformers' own default
    if model.architecture.endswith("ForSequenceClassification"):
        check_labels(model.name, int(labels))
    config.check_model(model)
    return model


def check_labels(name: str, labels: int) -> None:
    """Refuse a model that gives several values for a pair, as one that was trained for another task does."""
    if labels != 1:
        raise InputError(
            f"rerank.name: '{name}' gives {labels} values for a pair",
            allowed="a reranker, which gives one",
            fix="choose another model, such as BAAI/bge-reranker-base",
        )


def recipe(config: ScorerSettings, model: Reranker | ServedReranker) -> dict[str, Any]:
    """All that shapes the score of a pair, besides its texts."""
    prepared = config.prepared_recipe(model) if isinstance(config, RerankSettings) else None
    made_of = {"prepared": prepared.key} if prepared else {}
    return {"schema": SCHEMA, "model": model.recipe(), **made_of, **config.score_settings()}
