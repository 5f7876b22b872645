"""The local engine: this process does one part after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipeline.core.progress import Bar
from pipeline.engines.engine import Done, Job, Part


class LocalEngine:
    """See `pipeline.engines.engine.Engine`; `open_model` loads the model, if a job needs one."""

    kind = "local"
    workers = 1

    def __init__(self, open_model: Callable[[], Any] | None = None) -> None:
        self._open_model = open_model
        self._model: Any = None

    def load(self, parts: int) -> None:
        """Load the model, once for passages and queries."""
        if self._model is None and self._open_model:
            self._model = self._open_model()

    def start(self, parts: int) -> None:
        """Do nothing: this process is the worker."""

    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[Done]:
        """See `pipeline.engines.engine.Engine.each`; in order."""
        for part in parts:
            yield Done(part, job(part.read(), self._model, bar), "local")

    def close(self) -> None:
        """Let go of the model, so that its memory can be freed."""
        self._model = None
