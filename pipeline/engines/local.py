"""The local engine: this process does one part after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline import encoders
from pipeline.config import ModelConfig
from pipeline.core.progress import Bar
from pipeline.encoders import Encoder, Model, Source
from pipeline.engines import Done, Job, Part
from pipeline.storage.store import Store


class LocalEngine:
    """See `pipeline.engines.Engine`.

    Args:
        config: The model section.
        source: What the model section resolved to.
        store: Where a backend keeps what it prepares.
    """

    kind = "local"
    workers = 1

    def __init__(self, config: ModelConfig, source: Source, store: Store) -> None:
        self._config, self._source, self._store = config, source, store
        self._encoder: Encoder | None = None

    def load(self, parts: int) -> None:
        """Load the model, once for passages and queries."""
        if self._encoder is None and isinstance(self._source, Model):
            self._encoder = encoders.open_encoder(self._config, self._source, self._store)

    def each(self, job: Job, parts: Sequence[Part], bar: Bar) -> Iterator[Done]:
        """See `pipeline.engines.Engine.each`; in order."""
        for part in parts:
            yield Done(part, job.run(part.read(), self._encoder, bar), "local")

    def close(self) -> None:
        """Do nothing: no process was started."""
