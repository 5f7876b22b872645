"""Rerankers: models that read a query and a passage together, and score how well the passage answers.

A backend has an `Opener`, and a class with the interface `scorer.PairBackend` (one that runs PyTorch extends
`cross_encoders.TorchPairs`). `OPENERS` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from typing_extensions import override

from pipeline.config.rerank import RERANKERS, FlagRerankSettings, RerankSettings, ScorerSettings
from pipeline.core.display import Bar
from pipeline.core.records import Float32, JsonObject
from pipeline.encoders.base import Opener, ScoreSource, importing
from pipeline.encoders.batching import Usage
from pipeline.encoders.pairs.scorer import Pair, Reranker, check_labels
from pipeline.models.card import CONFIG_TYPES, max_positions
from pipeline.models.files import SIZE, find_model
from pipeline.models.model import Ready
from pipeline.models.resolution import FindModel, choose_device, computed_in, padding_id, refuse_adapter
from pipeline.models.text_settings import SCORE, read_text_settings
from pipeline.storage.store import Store

__all__ = ["OPENERS", "LocalReranker", "Pair", "Reranker", "Scorer", "Usage", "open_source", "resolve"]


class Scorer(Protocol):
    """A loaded reranker."""

    def score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        """Scores float32 [pairs] of queries and passages, in their order, a higher one for a better passage.

        A pair's score does not depend on the other pairs. What scoring costs is added to `usage`, and `bar`
        is advanced by each pair.
        """
        ...


PairOpener: TypeAlias = Opener[Any, Reranker, Scorer]
"""A backend that runs a reranker here, with settings of any class."""


OPENERS: dict[str, Callable[[], PairOpener]] = {
    "flag": importing("pipeline.encoders.pairs.flag_rerankers:FlagRerankOpener"),
    "openvino": importing("pipeline.encoders.pairs.converted:OpenVINORerankOpener"),
    "sentence-transformers": importing(
        "pipeline.encoders.pairs.cross_encoders:SentenceTransformersRerankOpener"
    ),
}
"""What opens a reranker that runs here, by the name of its built-in backend."""
SOURCES: dict[str, Callable[[Any], ScoreSource]] = {
    "http": importing("pipeline.encoders.http.backend:RerankServer")
}
"""What opens the settings of a backend that runs no model here."""


def resolve(config: ScorerSettings, find: FindModel = find_model) -> Reranker | ScoreSource:
    """The reranker that a config names, without loading anything; `find` finds and hashes its files."""
    if not isinstance(config, RerankSettings):
        opener: Callable[[Any], ScoreSource] = SOURCES.get(config.backend) or RERANKERS.opener(config.backend)
        return opener(config)
    device = choose_device(config.device, config.on_gpu)
    files = find(config.name, config.revision, config.trust_remote_code)
    refuse_adapter(config.name, files)
    read_text_settings(files, SCORE, config.name)
    described = files.read_json("config.json", **CONFIG_TYPES)
    limits = [config.max_length, max_positions(described)]
    query_max_length = None
    if isinstance(config, FlagRerankSettings):
        query_max_length = config.query_max_length or min(limits) * 3 // 4
    else:  # only sentence-transformers reads the tokenizer's limit
        declared = files.read_json("tokenizer_config.json", model_max_length=SIZE).get("model_max_length")
        limits.append(int(declared or config.max_length))
    model = Reranker(
        name=config.name,
        files=files,
        precision=computed_in(config.precision, device),
        device=device,
        pad_id=padding_id(described),
        max_length=min(limits),
        query_max_length=query_max_length,
        trust_remote_code=config.trust_remote_code,
        config=described,
    )
    if model.architecture.endswith("ForSequenceClassification"):
        labels = described.get("num_labels") or len(described.get("id2label") or {})
        check_labels(model.name, int(labels or 2))  # 2 is transformers' own default
    if config.backend != "auto":
        opener_of(config.backend).check(config, model)
    return model


def opener_of(backend: str) -> PairOpener:
    """What opens a reranker that runs here."""
    opener: Callable[[], PairOpener] = OPENERS.get(backend) or RERANKERS.opener(backend)
    return opener()


@dataclass(frozen=True)
class LocalReranker(ScoreSource):
    """A reranker that runs here, as a backend's settings have it run."""

    config: RerankSettings
    model: Reranker

    @property
    def opener(self) -> PairOpener:
        """The backend."""
        return opener_of(self.config.backend)

    @property
    @override
    def device(self) -> str:
        return self.model.device

    @override
    def ingredients(self) -> JsonObject:
        prepared = self.opener.recipe(self.model)
        return {"model": self.model.recipe(), **({"prepared": prepared.key} if prepared else {})}

    @override
    def shared_key(self) -> JsonObject:
        settings = self.config.model_dump(mode="json")
        return {"settings": settings, "device": self.device, "scorer": self.recipe()}

    @override
    def ready(self, store: Store) -> Ready:
        return Ready(self.model, self.opener.prepare_once(self.model, store), partial(_open, self.config))


def open_source(config: ScorerSettings, model: Reranker | ScoreSource) -> ScoreSource:
    """What gives the scores of a config's resolved reranker."""
    if isinstance(model, ScoreSource):
        return model
    assert isinstance(config, RerankSettings)
    return LocalReranker(config, model)


def _open(config: RerankSettings, model: Reranker, prepared: Path | None) -> Scorer:
    scorer = opener_of(config.backend).load(config, model, prepared)
    if prepared is None:
        model.files.check()
    return scorer
