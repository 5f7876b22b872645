"""The base class of all kinds of retrievers: what they offer to a benchmark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic, cast

from typing_extensions import TypeVar, override

from pipeline import data, encoders
from pipeline.config import Config, ScorerSettings
from pipeline.config.settings import Section
from pipeline.core.records import Collection
from pipeline.data import Identity
from pipeline.encoders import choice, pairs
from pipeline.engines import Engine, LocalEngine
from pipeline.models.files import find_model
from pipeline.models.model import Model
from pipeline.retrievers.ranking import Assessment
from pipeline.retrievers.stage import Facts, OpensEngine, Plan
from pipeline.storage.artifacts import Artifact
from pipeline.storage.store import Store

Settings = TypeVar("Settings", bound=Section, covariant=True, default=Section)
TokenCounter = Callable[[list[str]], Sequence[int]]
"""Gives the number of tokens of each text."""
MakeRetriever = Callable[[Config, "Identities", Identity, Path], "Retriever"]
"""Makes the retriever of a config: `pipeline.registry.make_retriever`."""


class Identities:
    """Looks up and hashes the data and models of configs, each once for all benchmarks that share this."""

    def __init__(self) -> None:
        self.collection = cache(data.identify)
        find = cache(find_model)
        self.model = cache(partial(encoders.resolve, find=find))
        self.reranker = cache(partial(pairs.resolve, find=find))

    def settle(self, config: Config) -> Config:
        """The config with the backends that `auto` takes (see `pipeline.encoders.choice`)."""
        return config.with_models(lambda section: choice.take(section, self.resolve))

    def resolve(self, section: Any) -> Any:
        """The model, or the given vectors, of a section `model` or `rerank`."""
        return (self.reranker if isinstance(section, ScorerSettings) else self.model)(section)


@dataclass(eq=False)
class Retriever(ABC, Generic[Settings]):
    """Makes a ranking of a collection; a kind names the class of its section, as `Retriever[Settings]`.

    Args:
        config: The benchmark's settings, with the backends that are used.
        identities: Looks up and hashes the files that the config names.
        identity: The hashes of the collection's parts.
        corpus: The file of the passages, which exists once the collection is read.
        make: Makes the retriever of another config, for one that is made of others.
    """

    config: Config
    identities: Identities
    identity: Identity
    corpus: Path
    make: MakeRetriever

    @property
    def settings(self) -> Settings:
        """The section of the config that names the kind: the model section, unless a kind says otherwise."""
        return cast("Settings", self.config.model)

    @property
    def ranking(self) -> str:
        """The role, in `stages`, of the stage that makes the ranking."""
        return "search"

    @abstractmethod
    def stages(self) -> Plan:
        """The stages from the collection to the ranking."""

    def plan(self) -> Plan:
        """`stages` with the engine of each."""
        opens = OpensEngine(self.engine_key(), self.open_engine)
        return {
            role: stage if stage.open_engine else replace(stage, open_engine=opens)
            for role, stage in self.stages().items()
        }

    def assessments(self) -> list[Assessment]:
        """What is measured of the ranking besides the measures."""
        return []

    def check(self, search_is_cached: bool) -> None:
        """Refuse settings that do not fit the model, the index or this machine, before anything is computed.

        With `search_is_cached`, the ranking exists already, and nothing will be searched.
        """
        return

    def confirm(self, store: Store, fresh: bool) -> None:
        """Refuse stored rows and scores of models that answer otherwise now, which keys cannot say."""
        return

    def check_collection(self, collection: Collection) -> None:
        """Refuse settings that do not fit the collection, once it is read and before texts are encoded."""
        return

    def models(self) -> list[Model]:
        """The models that texts are encoded with."""
        return []

    def open_engine(self, store: Store) -> Engine:
        """The engine that runs parts of the work; this process, for a kind that divides none of it."""
        return LocalEngine()

    def engine_key(self) -> Hashable:
        """All that shapes the engine of `open_engine`: benchmarks of equal keys can share one."""
        return self

    def report(self, artifacts: Mapping[str, Artifact], scores: Facts, stages: Sequence[Facts]) -> Facts:
        """What `metrics.json` says besides the measures, by key; see `pipeline.sections`.

        Args:
            artifacts: Those of the listed stages, by role.
            scores: What was measured.
            stages: The rows of the listed stages, as JSON.
        """
        return {}

    def token_counter(self) -> TokenCounter | None:
        """Counts tokens as the model does, without truncation; None where there is no model to ask."""
        return None


class Composed(Retriever[Settings], ABC):
    """A retriever that is made of others: what concerns their models and data is theirs to do."""

    @property
    @abstractmethod
    def inner(self) -> Sequence[Retriever]:
        """The retrievers whose rankings it uses."""

    @override
    def check(self, search_is_cached: bool) -> None:
        for each in self.inner:
            each.check(search_is_cached)

    @override
    def confirm(self, store: Store, fresh: bool) -> None:
        for each in self.inner:
            each.confirm(store, fresh)

    @override
    def check_collection(self, collection: Collection) -> None:
        for each in self.inner:
            each.check_collection(collection)

    @override
    def models(self) -> list[Model]:
        return [model for each in self.inner for model in each.models()]

    @override
    def token_counter(self) -> TokenCounter | None:
        return next(filter(None, (each.token_counter() for each in self.inner)), None)
