"""The local engine: this process does one part after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pipeline.core.progress import Bar
from pipeline.encoders import Encoder
from pipeline.engines.engine import Done, Job, Part


class LocalEngine:
    """See `pipeline.engines.engine.Engine`; `open_encoder` loads the model, if a job needs one."""

    kind = "local"
    workers = 1

    def __init__(self, open_encoder: Callable[[], Encoder] | None = None) -> None:
        self._open_encoder = open_encoder
        self._encoder: Encoder | None = None

    def load(self, parts: int) -> None:
        """Load the model, once for passages and queries."""
        if self._encoder is None and self._open_encoder:
            self._encoder = self._open_encoder()

    def start(self, parts: int) -> None:
        """Do nothing: this process is the worker."""

    def each(self, job: Job, parts: Sequence[Part], bar: Bar) -> Iterator[Done]:
        """See `pipeline.engines.engine.Engine.each`; in order."""
        for part in parts:
            yield Done(part, job(part.read(), self._encoder, bar), "local")

    def close(self) -> None:
        """Do nothing: no process was started."""
