"""What a backend makes of its settings and of a resolved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.encoders.agreement import Reference

Settings = TypeVar("Settings")
Resolved = TypeVar("Resolved")
Loaded = TypeVar("Loaded")


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
            UnsuitedError: The backend cannot run the model, or gives other results than torch.
        """
        return None

    def load(self, settings: Settings, model: Resolved, prepared: Path | None) -> Loaded:
        """Load a model; `prepared` is the folder that `prepare` made of it, or None."""
        raise NotImplementedError

    def reference(self, model: Resolved, prepared: Path | None) -> Reference | None:
        """What vectors are compared with while texts are encoded; None if they need no comparison."""
        return None
