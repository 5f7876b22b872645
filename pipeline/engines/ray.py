"""How is work divided among a cluster? Ray's workers hold the model and take one part at a time.

A worker is a Ray actor, on a GPU of its own or on an equal share of a machine's CPUs. A part whose worker
dies goes to another, and a new worker is asked for. Of each part no more comes back than the name of a file,
which the worker wrote where this process sees it too: into the cache, or with `engine.store` into that.
"""

from __future__ import annotations

import collections
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline import encoders
from pipeline.config import EngineConfig, ModelSettings
from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.encoders import Model, Source
from pipeline.engines import Job, Part, Piece, cluster
from pipeline.engines.away import Receiver, Sender
from pipeline.engines.work import perform
from pipeline.storage.store import Store

log = logging.getLogger(__name__)

LOSSES = 3  # workers that may die of one part, or before they begin: more is no accident
PATIENCE = 30.0  # seconds without any worker at work, after which that is said


class RayEngine:
    """See `pipeline.engines.Engine`.

    Args:
        config: The engine section.
        model: The model section.
        source: What the model resolved to.
        store: Where a backend may keep what it prepares; without `engine.store` every node must see it.

    Raises:
        InputError: There is no such cluster, or it has less than is asked for; `engine.store` cannot be used.
    """

    kind = "ray"

    def __init__(self, config: EngineConfig, model: ModelSettings, source: Source, store: Store) -> None:
        self._ray, self._connected = cluster.connect(config.address)
        self._source, self._sender = source, None
        self._idle: list[Any] = []
        # by what is waited for: the worker, and its part
        self._calls: dict[Any, tuple[Any, Part | None]] = {}
        self._losses: collections.Counter[Part | None] = collections.Counter()
        gpus = int(isinstance(source, Model) and source.device != "cpu")
        try:
            self._sender = Sender(config.store) if config.store else None
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            self.workers, cpus = cluster.share_out(nodes, config.workers, gpus > 0)
        except BaseException:
            self.close()
            raise
        self._wants = {"num_cpus": cpus, "num_gpus": gpus}
        place: Path | tuple[str, str] = store.root.absolute()
        if self._sender:
            source, place = self._sender.source(source), self._sender.place
        self._holds = (model, source, place, max(cpus, 1))

    def load(self, parts: int) -> None:
        """See `pipeline.engines.Engine.load`; other workers join as they are ready."""
        if self._sender:
            self._sender.push(self._source)
        self._hire(min(self.workers, parts), load=True)
        while not self._idle:
            self._next()

    def each(self, job: Job, parts: Sequence[Part], folder: Path, bar: Bar) -> Iterator[Piece]:
        """See `pipeline.engines.Engine.each`.

        Raises:
            InputError: A worker met it, or does not see `folder`, or has other packages than this process.
            ChildProcessError: Workers keep dying of a part, or before they begin.
        """
        todo, left = collections.deque(parts), len(parts)
        self._losses.clear()
        if self._sender:
            job = self._sender.job(job)
        while left:
            self._hire(min(self.workers, left))
            while todo and self._idle:
                worker, part = self._idle.pop(), todo.popleft()
                self._calls[worker.do.remote(job, part, folder.absolute())] = worker, part
            lost, piece = self._next()
            if piece and self._sender and not (piece := self._sender.take(made := piece, folder)):
                lost = made.part
                self._count_loss(lost, "a result was damaged on its way")
            if lost:
                todo.appendleft(lost)
            if piece:
                left -= 1
                bar.update(piece.done)
                yield piece

    def close(self) -> None:
        """See `pipeline.engines.Engine.close`."""
        for worker in (*self._idle, *(worker for worker, _ in self._calls.values())):
            self._ray.kill(worker)
        if self._connected:
            self._ray.shutdown()
        if self._sender:
            self._sender.close()

    def _hire(self, wanted: int, load: bool = False) -> None:
        """Ask for workers until there are as many as wanted, those counted that have not joined yet."""
        actor = self._ray.remote(Worker).options(**self._wants)
        while len(self._idle) + len(self._calls) < wanted:
            worker = actor.remote(*self._holds)
            self._calls[worker.join.remote(load)] = worker, None

    def _next(self) -> tuple[Part | None, Piece | None]:
        """Wait for one call to end: the part whose worker died of it, or the piece made, or neither."""
        call = self._wait()
        worker, part = self._calls.pop(call)
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            self._idle.append(worker)
            raise _cause(error) from error
        except self._ray.exceptions.RayError as error:
            self._ray.kill(worker)  # if it is only out of reach, nobody waits for it any more
            self._count_loss(part, "a worker died", f"; of the last Ray says: {error}")
            return part, None
        self._idle.append(worker)
        if part is None:
            cluster.compare(*answer)
            return None, None
        return None, answer

    def _wait(self) -> Any:
        while True:
            done, _ = self._ray.wait(list(self._calls), timeout=PATIENCE)
            if done:
                return done[0]
            if all(part is None for _, part in self._calls.values()):
                log.warning("waiting: the cluster has started no worker yet; each wants %s", self._wants)

    def _count_loss(self, part: Part | None, what: str, reason: str = "") -> None:
        self._losses[part] += 1
        where = f"rows {part[0]} to {part[1]}" if part else "joining"
        if self._losses[part] >= LOSSES:
            raise ChildProcessError(f"{what} at {where}, {LOSSES} times{reason}")
        log.warning("%s at %s; it is done again", what, where)


class Worker:
    """What a worker holds: the model. Everything that can fail is left to `join`, the first call.

    Ray takes an error of an actor's making for the death of its worker.

    Args:
        config: The model section.
        source: What it resolved to.
        place: Of the artifact store that all share; or of the exchange, with the driver's name there.
        threads: As many as it may keep busy; read by the libraries when they are imported.
    """

    def __init__(
        self, config: ModelSettings, source: Source, place: Path | tuple[str, str], threads: int
    ) -> None:
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(threads)
        self._config, self._source, self._place = config, source, place
        self._receiver: Receiver | None = None

    def join(self, load: bool) -> tuple[str, dict[str, str]]:
        """Load the model, if it will be needed; the node's name and the versions of its packages.

        Raises:
            InputError: This node does not reach the exchange, or does not have the model's package.
        """
        source = self._source
        if isinstance(self._place, Path):
            store = Store(self._place)
        else:
            self._receiver = Receiver(*self._place)
            self._receiver.exchange.check(cluster.node())
            source, store = self._receiver.source(self._config, source), self._receiver.store
        self.encoder = encoders.open_encoder(self._config, source, store)
        if load:
            self.encoder.load()
        return cluster.node(), machine.versions()

    def do(self, job: Job, part: Part, folder: Path) -> Piece:
        """See `pipeline.engines.work.perform`.

        Raises:
            InputError: This node does not see the folder.
        """
        if self._receiver:
            return self._receiver.perform(job, self.encoder, part, cluster.node())
        if not folder.is_dir():
            raise InputError(
                f"cache: {folder} is not there on node {cluster.node()}",
                allowed="a folder that every node of the cluster sees under the same path",
                fix="set cache to a folder of a shared file system, or engine.store to what all nodes reach",
            )
        return perform(job, self.encoder, part, folder, cluster.node())


def _cause(error: Any) -> BaseException:
    """What a worker raised; pickling keeps no keywords, so an InputError is made again."""
    cause: BaseException = error.cause
    if isinstance(cause, InputError):
        return InputError(cause.found, allowed=cause.allowed, fix=cause.fix)
    return cause
