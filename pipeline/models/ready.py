"""A model that is ready to be loaded, in this process or by workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.storage.artifacts import Artifact


@dataclass(frozen=True)
class Ready:
    """A model, after its backend has prepared it.

    Attributes:
        model: A `Model` or a `Reranker`: a frozen dataclass with an attribute `files`.
        prepared: What the backend made of its files; None if it uses the files themselves.
        open: Loads it, from the model and the folder of what was prepared, or None. It can be pickled.
    """

    model: Any
    prepared: Artifact | None
    open: Callable[[Any, Path | None], Any]

    def load(self) -> Any:
        """The loaded model, an `Encoder` or a `Scorer`."""
        return self.open(self.model, self.prepared.folder if self.prepared else None)
