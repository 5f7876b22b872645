"""What a backend offers: an opener of a model that runs here, or a source of rows or scores."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from pipeline.config import RowSettings, ScorerSettings, keyed_settings
from pipeline.core import machine
from pipeline.core.records import Collection, JsonObject, VectorForm
from pipeline.encoders.batching import Rows
from pipeline.models.model import Model, Ready, Role
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.encoders.agreement import Reference

SCHEMA = 1  # schema of what is computed for a pair
Settings = TypeVar("Settings")
Resolved = TypeVar("Resolved")
Loaded = TypeVar("Loaded", covariant=True)


class Opener(Generic[Settings, Resolved, Loaded]):
    """A backend: its settings, the resolved model that it runs, and what it loads.

    For texts that is a `batching.Backend`, for pairs of texts a `pipeline.encoders.pairs.Scorer`.
    """

    def check(self, settings: Settings, model: Resolved) -> None:
        """Raise an InputError for a model that these settings do not fit; loads nothing."""

    def suits(self, model: Resolved) -> bool:
        """Whether the backend runs a model fast on this machine, as far as its files tell."""
        return True

    def recipe(self, model: Resolved) -> Recipe | None:
        """The recipe of the model's prepared form; None if the backend runs the model's own files."""
        return None

    def prepare(self, model: Resolved, store: Store) -> Artifact | None:
        """The artifact of `recipe`, loaded or made; None if there is none.

        Raises:
            InputError: The backend cannot run the model, or gives other results than torch.
        """
        return None

    def prepare_once(self, model: Resolved, store: Store) -> Artifact | None:
        """As `prepare`, once for all benchmarks of this user; the time it takes is not its stage's."""
        recipe = self.recipe(model)
        if recipe is None:
            return self.prepare(model, store)
        kept = store.for_models(recipe)
        if kept.find(recipe):
            return self.prepare(model, kept)
        with machine.preparing():
            return self.prepare(model, kept)

    def load(self, settings: Settings, model: Resolved, prepared: Path | None) -> Loaded:
        """Load a model; `prepared` is the folder that `prepare` made of it, or None."""
        raise NotImplementedError

    def reference(self, model: Resolved, prepared: Path | None) -> Reference | None:
        """What vectors are compared with while texts are encoded; None if they need no comparison."""
        return None


def importing(place: str) -> Callable[..., Any]:
    """A function that calls what "module:name" names, imported when it is first called."""

    def call(*arguments: object) -> Any:
        module, _, name = place.partition(":")
        return getattr(importlib.import_module(module), name)(*arguments)

    return call


class Closing(Protocol):
    """What holds a connection."""

    def close(self) -> None:
        """Cancel what is under way."""


class Source:
    """What gives a row for each text, or a score for each pair: a network that runs here, a server, or files.

    Attributes:
        served: Whether a server is asked, over `connect`.
    """

    served: ClassVar[bool] = False

    @property
    def device(self) -> str:
        """What computes here: `cpu` or `cuda:N`."""
        return "cpu"

    def check(self) -> None:
        """Refuse a source that cannot be used on this machine, before anything is computed."""
        return

    def confirm(self, store: Store, fresh: bool) -> None:
        """Refuse stored rows or scores that the source would not give again, which keys cannot say."""
        return

    def shared_key(self) -> JsonObject | None:
        """JSON of all that workers of an engine load; None if benchmarks cannot share them."""
        return None

    def ready(self, store: Store) -> Ready:
        """What workers of an engine load, where a network runs here."""
        raise NotImplementedError

    def connect(self) -> Closing:
        """The connection to the server: what `ready` loads otherwise; several threads may use it at once."""
        raise NotImplementedError


class RowSource(Source, ABC):
    """What gives a row for each text.

    Attributes:
        model: The network that runs here; None where a server or files give the rows.
        stored: Whether files hold the rows, which `take` reads.
        unit_length: Whether rows that are to have length 1 must have it already.
    """

    model: Model | None = None
    stored: ClassVar[bool] = False
    unit_length: ClassVar[bool] = False

    @abstractmethod
    def recipe(self, role: Role) -> JsonObject:
        """What shapes the rows of a role, in artifact keys."""

    def ingredients(self, role: Role) -> JsonObject:
        """The parts of the key of rows that the source decides, by name."""
        return {"model": self.recipe(role)}

    def match(self, collection: Collection) -> None:
        """Refuse a source that does not fit a collection."""
        return

    def form(self, settings: RowSettings) -> VectorForm:
        """What settings make of whole vectors, their number format apart."""
        dimensions = self.model.truncate_dim if self.model else settings.truncate_dim
        given_at_length_1 = self.unit_length and settings.normalize
        return VectorForm(dimensions, settings.normalize, given_at_length_1=given_at_length_1)

    def take(self, role: Role, rows: range, ids: pa.ChunkedArray) -> Rows:
        """The rows of consecutive texts; `ids` are the texts', Arrow strings [rows], for messages."""
        raise NotImplementedError


class ScoreSource(Source, ABC):
    """What gives a score for each pair of a query and a passage."""

    config: ScorerSettings

    @abstractmethod
    def ingredients(self) -> JsonObject:
        """The parts of the key of scores that the source decides, by name."""

    def recipe(self) -> JsonObject:
        """All that shapes the score of a pair, besides its texts, in artifact keys."""
        return {"schema": SCHEMA, **self.ingredients(), **keyed_settings(self.config, "scores")}
