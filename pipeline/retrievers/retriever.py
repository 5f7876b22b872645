"""The base class of all kinds of retrievers: what they offer to the runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Generic, TypeVar, cast

from pipeline import data, encoders
from pipeline.config import Config, ModelSettings
from pipeline.data import Identity
from pipeline.engines import Engine, LocalEngine
from pipeline.models.files import find_model
from pipeline.retrievers.stage import Plan
from pipeline.storage.store import Store

Settings = TypeVar("Settings", bound=ModelSettings)
TokenCounter = Callable[[list[str]], Sequence[int]]
"""Gives the number of tokens of each text."""


class Identities:
    """Looks up and hashes the data and models of configs, each once for all benchmarks that share this."""

    def __init__(self) -> None:
        self.collection = cache(data.identify)
        self.model = cache(partial(encoders.resolve, find=cache(find_model)))


@dataclass
class Retriever(ABC, Generic[Settings]):
    """Makes a ranking of a collection; a kind names the class of its model section, as `Retriever[Settings]`.

    Args:
        config: The benchmark's settings.
        identities: Looks up and hashes the files that the config names.
        identity: The hashes of the collection's parts.
        corpus: The file of the passages, which exists once the collection is read.
    """

    config: Config
    identities: Identities
    identity: Identity
    corpus: Path

    @property
    def settings(self) -> Settings:
        """The model section."""
        return cast("Settings", self.config.model)

    @abstractmethod
    def stages(self) -> Plan:
        """The stages from the collection to the ranking; the last of them is called `search`."""

    def check(self, search_is_cached: bool) -> None:
        """Refuse settings that do not fit the model, the index or this machine, before anything is computed.

        With `search_is_cached`, the ranking exists already, and nothing will be searched.
        """
        return

    def open_engine(self, store: Store) -> Engine:
        """The engine that runs parts of the work; this process, for a kind that divides none of it."""
        return LocalEngine()

    def token_counter(self) -> TokenCounter | None:
        """Counts tokens as the model does, without truncation; None where there is no model to ask."""
        return None
