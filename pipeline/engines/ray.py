"""The Ray engine: workers on a cluster hold the model and do one part at a time.

A worker is a Ray actor, on a GPU of its own or on an equal share of a machine's CPUs. Inputs, outputs and
model files travel through Ray's object store. At most one part more than the workers is in memory. If a
worker dies, another one takes its part, and a new one is started.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from typing_extensions import override

from pipeline.config import EngineConfig
from pipeline.core.display import Bar
from pipeline.encoders.opener import Opener
from pipeline.engines import cluster
from pipeline.engines.base import Content, Job, Part, PartResult
from pipeline.engines.cluster import Handle
from pipeline.engines.pool import Task, WorkerDeath, WorkerPool, WorkerState
from pipeline.engines.worker import ShippedFiles, Worker, WorkerModel
from pipeline.storage.store import Store

log = logging.getLogger(__name__)


class RayEngine(WorkerPool[Handle]):
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
        super().__init__(0)
        self._ray, self._connected = cluster.connect(config.address)
        self._opener, self._store = opener, store
        self._model: WorkerModel | None = None
        self._contents: dict[str, list[Handle]] | None = None
        self._calls: dict[Handle, Handle] = {}  # the worker of each call that has not ended
        gpus = int(opener is not None and opener.model.device != "cpu")
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
            for worker, state in self._workers.items():
                state.started = False
                self._join(worker)
        self.start(parts)

    @override
    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        """The loss of this node, or of many workers, ends it."""
        cluster.check_node(self._ray)
        return super().each(job, parts, bar)

    @override
    def close(self) -> None:
        super().close()
        if self._connected:
            self._ray.shutdown()

    @override
    def _pack(self, content: Content) -> Handle:
        return self._ray.put(content)

    @override
    def _start_worker(self) -> Handle:
        actor = self._ray.remote(Worker).options(**self._wants)
        worker = actor.remote(max(self._wants["num_cpus"], 1))
        self._join(worker)
        return worker

    def _join(self, worker: Handle, contents: dict[str, list[Handle]] | None = None) -> None:
        self._calls[worker.join.remote(self._model, contents)] = worker

    @override
    def _give(self, worker: Handle, task: Task) -> None:
        self._calls[worker.run.remote(self._job, task.inputs)] = worker

    @override
    def _end(self, worker: Handle) -> None:
        self._calls = {call: other for call, other in self._calls.items() if other != worker}
        self._ray.kill(worker)

    @override
    def _wait(self, seconds: float) -> tuple[Handle, Any] | None:
        cluster.check_node(self._ray)
        ended, _ = self._ray.wait(list(self._calls), timeout=seconds)
        cluster.check_node(self._ray)
        if not ended:
            return None
        worker = self._calls.pop(ended[0])
        try:
            # a copy, because the process ends without a message when memory of a lost node is freed
            answer = copy.deepcopy(self._ray.get(ended[0]))
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            return worker, WorkerDeath(" ".join(str(error).split()))
        if self._workers[worker].started:
            return worker, answer
        return (worker, None) if self._has_joined(worker, *answer) else None

    @override
    def _name_silent(self, worker: Handle, state: WorkerState, seconds: float) -> None:
        if state.tasks:
            part = state.tasks[0].part
            log.warning("a worker has been at rows %d to %d for %.0f s", part.start, part.stop, seconds)
        else:
            log.warning("a worker has not started in %.0f s; it wants %s of a node", seconds, self._wants)

    def _has_joined(self, worker: Handle, node: str, versions: dict[str, str], loaded: bool | None) -> bool:
        """Whether a worker that was asked to join is ready; if not, it is sent the model first."""
        cluster.compare(node, versions)
        if loaded is None and self._model:  # it was started before there was a model to load
            self._join(worker)
        elif loaded is False and self._model and self._model.files:
            self._join(worker, self._put(self._model.files))
        else:
            if sum(not state.started for state in self._workers.values()) == 1:
                self._contents = None
            return True
        return False

    def _put(self, files: ShippedFiles) -> dict[str, list[Handle]]:
        """Put the model's files into the object store, by name; they stay there while workers start."""
        if self._contents is None:
            put = self._ray.put
            self._contents = {name: [put(chunk) for chunk in files.chunks(name)] for name in files.entries}
        return self._contents
