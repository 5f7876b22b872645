"""What every kind of retriever offers to the runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from pipeline import data, encoders
from pipeline.config import Config
from pipeline.config.kinds import named
from pipeline.data import Identity
from pipeline.engines import Engine, LocalEngine
from pipeline.models.files import find_model
from pipeline.retrievers.stage import Plan
from pipeline.storage.store import Store

TokenCounter = Callable[[list[str]], Sequence[int]]
"""Gives the number of tokens of each text."""


class Identities:
    """What configs name, looked up and hashed once for all benchmarks that share this."""

    def __init__(self) -> None:
        self.collection = cache(data.identify)
        self.model = cache(partial(encoders.resolve, find=cache(find_model)))


@dataclass
class Retriever(ABC):
    """Makes a ranking of a collection.

    Args:
        config: The benchmark's settings.
        identities: Looks up and hashes the files that the config names.
        identity: What the collection's parts are.
        corpus: The file that the passages are in once the collection is read.
    """

    config: Config
    identities: Identities
    identity: Identity
    corpus: Path

    @abstractmethod
    def stages(self) -> Plan:
        """The stages from the collection to the ranking; the last of them is called `search`."""

    def check(self, search_is_cached: bool) -> None:
        """Refuse what can be known to be wrong before anything is computed.

        Args:
            search_is_cached: Whether the ranking exists already, so that nothing will be searched.

        Raises:
            InputError: A setting does not fit the model, the index or this machine.
        """
        return

    def open_engine(self, store: Store) -> Engine:
        """Where parts of the work are done; for a kind that divides none of its work, this process."""
        return LocalEngine()

    def token_counter(self) -> TokenCounter | None:
        """Counts tokens as the model does, without truncation; None where there is no model to ask."""
        return None


def open_retriever(config: Config, identities: Identities, identity: Identity, corpus: Path) -> Retriever:
    """The retriever of a config, of the kind that its model section names; arguments as of `Retriever`."""
    kind = named(config.model.retriever)
    retriever: Retriever = kind(config, identities, identity, corpus)
    return retriever
