"""The Ray engine: workers on a cluster hold the model and do one part at a time.

A worker is a Ray actor, on a GPU of its own or on an equal share of a machine's CPUs. Inputs, outputs and
model files travel through Ray's object store. At most one part more than the workers is in memory. If a
worker dies, another one takes its part, and a new one is started.
"""

from __future__ import annotations

import collections
import copy
import itertools
import logging
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from typing_extensions import override

from pipeline.config import EngineConfig
from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.encoders.opener import Opener
from pipeline.engines import cluster
from pipeline.engines.cluster import Handle
from pipeline.engines.engine import Done, Engine, Job, Part
from pipeline.engines.worker import ShippedFiles, Worker, WorkerModel
from pipeline.storage.store import Store

log = logging.getLogger(__name__)

LOSSES = 3  # workers lost at one part, or as they start, that end the run
PATIENCE = 30.0  # seconds without a started worker, after which a warning is logged
LOOK = 5.0  # seconds between two checks of this machine's node


class _Task(NamedTuple):
    """A part, and the reference of its inputs in the object store."""

    part: Part
    inputs: Handle


class RayEngine(Engine):
    """Workers of a Ray cluster.

    Args:
        config: The engine section.
        opener: Loads the model of workers; None if they need none.
        store: Holds what a backend converts; only this process uses it.

    Raises:
        InputError: There is no such cluster, or it has fewer processors than the config wants.
    """

    kind = "ray"

    def __init__(self, config: EngineConfig, opener: Opener | None, store: Store) -> None:
        self._ray, self._connected = cluster.connect(config.address)
        self._opener, self._store = opener, store
        self._model: WorkerModel | None = None
        self._contents: dict[str, list[Handle]] | None = None
        self._idle: list[Handle] = []
        # the worker of each call that has not ended, and its task; None while the worker starts
        self._calls: dict[Handle, tuple[Handle, _Task | None]] = {}
        self._ready = collections.deque[_Task]()
        self._losses = collections.Counter[Part | None]()
        gpus = int(opener is not None and opener.device != "cpu")
        try:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            self.workers, cpus = cluster.share_out(nodes, config.workers, gpus > 0)
        except BaseException:
            self.close()
            raise
        self._wants = {"num_cpus": cpus, "num_gpus": gpus}
        cluster.send_no_more_than_needed(self._ray)

    @override
    def load(self, parts: int) -> None:
        if self._model is None and self._opener:
            self._model = WorkerModel.of(self._opener, self._opener.prepare(self._store))
            while self._idle:
                self._start(self._idle.pop())
        self.start(parts)

    @override
    def start(self, parts: int) -> None:
        self._hire(min(self.workers, parts))
        while not self._idle:
            self._next()

    @override
    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[Done]:
        """The loss of this node, or of many workers, ends it."""
        coming = iter(parts)
        todo = collections.deque(itertools.islice(coming, self.workers))
        left = len(todo)
        self._losses.clear()
        self._ready.clear()
        cluster.check_node(self._ray)
        shared = self._ray.put(job)
        while left:
            cluster.check_node(self._ray)
            self._hire(min(self.workers, left))
            while todo and len(self._ready) <= len(self._idle):
                part = todo.popleft()
                more = list(itertools.islice(coming, 1))  # not all at once: sizes may follow the speed
                todo.extend(more)
                left += len(more)
                self._ready.append(_Task(part, self._ray.put(part.read())))
            while self._ready and self._idle:
                worker, task = self._idle.pop(), self._ready.popleft()
                self._calls[worker.run.remote(shared, task.inputs)] = worker, task
            finished = self._next()
            if finished:
                left -= 1
                done, progress = finished
                bar.update(progress)
                yield done

    @override
    def close(self) -> None:
        for worker in (*self._idle, *(worker for worker, _ in self._calls.values())):
            self._ray.kill(worker)
        if self._connected:
            self._ray.shutdown()

    def _hire(self, wanted: int) -> None:
        """Start workers until there are as many as wanted, including those that have not joined yet."""
        actor = self._ray.remote(Worker).options(**self._wants)
        while len(self._idle) + len(self._calls) < wanted:
            self._start(actor.remote(max(self._wants["num_cpus"], 1)))

    def _start(self, worker: Handle, contents: dict[str, list[Handle]] | None = None) -> None:
        self._calls[worker.join.remote(self._model, contents)] = worker, None

    def _next(self) -> tuple[Done, int] | None:
        """Wait for one call to end: the finished part with its progress; None if none was finished."""
        call = self._wait()
        worker, task = self._calls.pop(call)
        try:
            # a copy, because the process ends without a message when memory of a lost node is freed
            answer = copy.deepcopy(self._ray.get(call))
        except self._ray.exceptions.RayTaskError as error:
            self._idle.append(worker)
            raise _cause(error) from error
        except self._ray.exceptions.RayError as error:
            self._ray.kill(worker)  # it may be alive but out of reach
            self._count_loss(task.part if task else None, error)
            if task:
                self._ready.appendleft(task)
            return None
        if task is None:
            self._welcome(worker, *answer)
            return None
        self._idle.append(worker)
        outputs, progress, node = answer
        return Done(task.part, outputs, node), progress

    def _welcome(self, worker: Handle, node: str, versions: dict[str, str], has_model: bool | None) -> None:
        """Count a worker that has started as idle, or send it the model first."""
        cluster.compare(node, versions)
        if has_model is None and self._model:  # it was started before there was a model to load
            self._start(worker)
        elif has_model is False and self._model and self._model.files:
            self._start(worker, self._put(self._model.files))
        else:
            self._idle.append(worker)
            if all(task for _, task in self._calls.values()):
                self._contents = None

    def _put(self, files: ShippedFiles) -> dict[str, list[Handle]]:
        """Put the model's files into the object store, by name; they stay there while workers start."""
        if self._contents is None:
            put = self._ray.put
            self._contents = {name: [put(chunk) for chunk in files.chunks(name)] for name in files.entries}
        return self._contents

    def _wait(self) -> Handle:
        """The next call to end, whichever it is."""
        since = time.monotonic()
        while True:
            done, _ = self._ray.wait(list(self._calls), timeout=LOOK)
            cluster.check_node(self._ray)
            if done:
                return done[0]
            starting = all(task is None for _, task in self._calls.values())
            if starting and time.monotonic() - since > PATIENCE:
                log.warning("waiting: the cluster has started no worker yet; each wants %s", self._wants)
                since = time.monotonic()

    def _count_loss(self, part: Part | None, error: Exception) -> None:
        self._losses[part] += 1
        where = f"at rows {part.start} to {part.stop}" if part else "as it started"
        if self._losses[part] >= LOSSES:
            raise ChildProcessError(
                f"a worker died {where}, {LOSSES} times; of the last one Ray says: {error}"
            )
        log.warning("a worker died %s; another one does its work", where)


def _cause(error: Handle) -> BaseException:
    """The error that a worker raised; pickling keeps no keywords, so an InputError is made again."""
    cause: BaseException = error.cause
    if isinstance(cause, InputError):
        return type(cause)(cause.found, allowed=cause.allowed, fix=cause.fix)
    return cause
