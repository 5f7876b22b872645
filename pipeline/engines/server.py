"""The engine of a served model: this process asks the server, for two parts at a time.

A part ends with few requests under way. Those of the next part are sent meanwhile, so that the server always
has as many as it is meant to have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pipeline.core.progress import Bar
from pipeline.engines.engine import Done, Job, Part


class ServerEngine:
    """See `pipeline.engines.engine.Engine`; `connect` opens the model, which has a method `close`."""

    kind = "local"
    workers = 2

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._model: Any = None

    def load(self, parts: int) -> None:
        """Open the connection, once for passages and queries."""
        if self._model is None:
            self._model = self._connect()

    def start(self, parts: int) -> None:
        """Do nothing: this process is the worker."""

    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[Done]:
        """See `pipeline.engines.engine.Engine.each`; in order."""
        under_way = deque[tuple[Part, Future[Any]]]()
        with ThreadPoolExecutor(self.workers) as threads:
            try:
                for part in parts:
                    under_way.append((part, threads.submit(job, part.read(), self._model, bar)))
                    if len(under_way) == self.workers:
                        yield _done(*under_way.popleft())
                while under_way:
                    yield _done(*under_way.popleft())
            except BaseException:
                self.close()  # or the threads would wait for their answers
                raise

    def close(self) -> None:
        """Cancel requests that are under way, and let go of the connection."""
        if self._model is not None:
            self._model.close()
        self._model = None


def _done(part: Part, outputs: Future[Any]) -> Done:
    return Done(part, outputs.result(), "local")
