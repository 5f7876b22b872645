"""The `ray` engine: workers on a cluster hold the model and take one part at a time.

A worker is a Ray actor, on a GPU of its own or on an equal share of a machine's CPUs. A part whose worker
dies goes to another, and a new worker is asked for. Of each part no more comes back than the name of a file,
which the worker wrote where this process sees it too.
"""

from __future__ import annotations

import collections
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline import encoders, machine
from pipeline.artifacts import Store
from pipeline.config import EngineConfig, ModelConfig
from pipeline.encoders import Model, Source
from pipeline.engines import Job, Part, Piece
from pipeline.engines.work import perform
from pipeline.errors import InputError
from pipeline.progress import Bar

log = logging.getLogger(__name__)

LOSSES = 3  # workers that may die of one part, or before they begin: more is no accident
PATIENCE = 30.0  # seconds without any worker at work, after which that is said
_REACH = 5.0  # seconds a cluster's head may take to answer; Ray itself tries for minutes


class RayEngine:
    """See `pipeline.engines.Engine`.

    Args:
        config: The engine section.
        model: The model section.
        source: What the model resolved to.
        store: Where a backend may keep what it prepares; every node must see it.

    Raises:
        InputError: There is no such cluster, or it has less than is asked for.
    """

    def __init__(self, config: EngineConfig, model: ModelConfig, source: Source, store: Store) -> None:
        self._ray, self._connected = _connect(config.address)
        self._idle: list[Any] = []
        self._calls: dict[
            Any, tuple[Any, Part | None]
        ] = {}  # by what is waited for: the worker, and its part
        self._losses: collections.Counter[Part | None] = collections.Counter()
        gpus = int(isinstance(source, Model) and source.device != "cpu")
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        try:
            self.workers, cpus = share_out(nodes, config.workers, gpus > 0)
        except InputError:
            self.close()
            raise
        self._wants = {"num_cpus": cpus, "num_gpus": gpus}
        self._holds = (model, source, store.root.absolute(), max(cpus, 1))

    def load(self, parts: int) -> None:
        """See `pipeline.engines.Engine.load`; other workers join as they are ready."""
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
        while left:
            self._hire(min(self.workers, left))
            while todo and self._idle:
                worker, part = self._idle.pop(), todo.popleft()
                self._calls[worker.do.remote(job, part, folder.absolute())] = worker, part
            lost, piece = self._next()
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
            self._count_loss(part, str(error))
            return part, None
        self._idle.append(worker)
        if part is None:
            _compare(*answer)
            return None, None
        return None, answer

    def _wait(self) -> Any:
        while True:
            done, _ = self._ray.wait(list(self._calls), timeout=PATIENCE)
            if done:
                return done[0]
            if all(part is None for _, part in self._calls.values()):
                log.warning("waiting: the cluster has started no worker yet; each wants %s", self._wants)

    def _count_loss(self, part: Part | None, reason: str) -> None:
        self._losses[part] += 1
        what = f"rows {part[0]} to {part[1]}" if part else "joining"
        if self._losses[part] >= LOSSES:
            raise ChildProcessError(f"{LOSSES} workers died at {what}; of the last Ray says: {reason}")
        log.warning("a worker died at %s; another does it", what)


class Worker:
    """What a worker holds: the model.

    Args:
        config: The model section.
        source: What it resolved to.
        root: Of the artifact store.
        threads: As many as it may keep busy; read by the libraries when they are imported.
    """

    def __init__(self, config: ModelConfig, source: Source, root: Path, threads: int) -> None:
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(threads)
        self.encoder = encoders.open_encoder(config, source, Store(root))

    def join(self, load: bool) -> tuple[str, dict[str, str]]:
        """Load the model, if it will be needed; the node's name and the versions of its packages."""
        if load:
            self.encoder.load()
        return _node(), machine.versions()

    def do(self, job: Job, part: Part, folder: Path) -> Piece:
        """See `pipeline.engines.work.perform`.

        Raises:
            InputError: This node does not see the folder.
        """
        if not folder.is_dir():
            raise InputError(
                f"cache: {folder} is not there on node {_node()}",
                allowed="a folder that every node of the cluster sees under the same path",
                fix="set cache to a folder of a shared file system",
            )
        return perform(job, self.encoder, part, folder, _node())


def share_out(nodes: Sequence[dict[str, float]], workers: int | None, gpu: bool) -> tuple[int, int]:
    """How many workers a cluster gets, and how many CPUs each.

    Args:
        nodes: What each node has, as Ray counts it.
        workers: As many as are asked for; None is one per GPU, or without GPUs one per node.
        gpu: Whether each has a GPU of its own.

    Returns:
        The number of workers, and of CPUs for each, the same for all: the most that lets all run at once.

    Raises:
        InputError: The cluster has fewer GPUs, or CPUs, than workers are asked for.
    """
    kind = "GPU" if gpu else "CPU"
    usable = [node for node in nodes if int(node.get(kind, 0))]
    there = sum(int(node[kind]) for node in usable)
    workers = workers or (there if gpu else len(usable))
    if not 0 < workers <= there:
        asked = f"engine.workers: {workers}" if workers else "model.device: cuda"
        raise InputError(
            f"{asked}, but the cluster has {there} {kind}{'' if there == 1 else 's'}",
            allowed=f"1 to {there} workers" if there else f"a cluster with a {kind}",
            fix=f"lower engine.workers, or add nodes with {kind}s" if there else "set model.device to cpu",
        )
    if gpu:
        return workers, min(int(node.get("CPU", 0)) // int(node["GPU"]) for node in usable)
    sizes = range(int(max(node["CPU"] for node in usable)), 0, -1)
    return workers, next(n for n in sizes if sum(int(node["CPU"]) // n for node in usable) >= workers)


def _connect(address: str | None) -> tuple[Any, bool]:
    """Ray, and whether this call connected to a cluster: the program may have done so already."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    if ray.is_initialized():
        return ray, False
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        log.info("starting Ray here")
        ray.init("local", num_cpus=len(os.sched_getaffinity(0)), include_dashboard=False, **quiet)
        return ray, True
    try:
        if address != "auto":  # a refusal takes no time, where Ray tries for minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), _REACH).close()
        ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"engine.address: no Ray cluster at {address}: {error}",
            allowed="null, auto, or HOST:PORT of the head of a cluster that this machine is a node of",
            fix="start one as docs/scale.md says; if it has a token, set RAY_AUTH_TOKEN_PATH here as there",
        ) from None
    return ray, True


def _node() -> str:
    """This node's address and the beginning of its id."""
    import ray

    return f"{ray.util.get_node_ip_address()}/{ray.get_runtime_context().get_node_id()[:8]}"


def _cause(error: Any) -> BaseException:
    """What a worker raised; pickling keeps no keywords, so an InputError is made again."""
    cause: BaseException = error.cause
    if isinstance(cause, InputError):
        return InputError(cause.found, allowed=cause.allowed, fix=cause.fix)
    return cause


def _compare(node: str, versions: dict[str, str]) -> None:
    """Refuse a node whose packages could compute something else; builds of one version are alike."""
    for package, here in machine.versions().items():
        there = versions.get(package, "none")
        if there.partition("+")[0] != here.partition("+")[0]:
            raise InputError(
                f"engine: node {node} has {package} {there}, and this machine {here}",
                allowed="the same versions everywhere",
                fix="run scripts/setup of the same checkout on every node",
            )
