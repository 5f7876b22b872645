"""How is work done without a cluster? This process does one part after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from pipeline import encoders
from pipeline.config import ModelSettings
from pipeline.core.progress import Bar
from pipeline.encoders import Encoder, Source
from pipeline.engines import Job, Part, Piece
from pipeline.engines.work import perform
from pipeline.storage.store import Store


class LocalEngine:
    """See `pipeline.engines.Engine`.

    Args:
        config: The model section.
        source: What it resolved to.
        store: Where a backend may keep what it prepares.
    """

    kind = "local"
    workers = 1

    def __init__(self, config: ModelSettings, source: Source, store: Store) -> None:
        self.config, self.source, self.store = config, source, store

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded once for passages and queries."""
        return encoders.open_encoder(self.config, self.source, self.store)

    def load(self, parts: int) -> None:
        """Load the model."""
        self.encoder.load()

    def each(self, job: Job, parts: Sequence[Part], folder: Path, bar: Bar) -> Iterator[Piece]:
        """See `pipeline.engines.Engine.each`; in order."""
        for part in parts:
            yield perform(job, self.encoder, part, folder, "local", bar)

    def close(self) -> None:
        """Nothing is held that has to be given back."""
