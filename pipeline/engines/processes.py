"""Processes of this machine, each with a device and a copy of the model: `engine.kind: local` with several.

A process is sent messages over a socket: the model, then each part with its job. The next part is sent while
it computes one. All but short messages travel in shared memory that has no name, so that sending waits for
nobody, and nothing is left of them, however the processes end. A process ends when its socket closes, and
where the system can do that, with the process that started it.
"""

from __future__ import annotations

import importlib
import logging
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakKeyDictionary

from typing_extensions import override

from pipeline.core import machine
from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.subprocesses import end_with
from pipeline.encoders.opener import Opener
from pipeline.engines.base import Content, Job, Part, PartJob, PartResult
from pipeline.engines.pool import Tally, Task, WorkerDeath, WorkerPool, WorkerState
from pipeline.storage.store import Store

log = logging.getLogger(__name__)

PATIENCE = 1.0  # seconds in which a process whose socket has closed ends
START_SECONDS = 900.0  # in which a process must have loaded its model
PROGRESS_SECONDS = 0.2  # between two reports of a process's progress
ALIGNED = 64  # arrays in shared memory begin at multiples of so many bytes
SHORT = 4096  # bytes of a pickled message that goes through the socket itself
OPEN = 0 if machine.MEMORY_FILES else 3
"""Files that were sent last and stay open: macOS may close one on its way if its sender does
(nodejs/node#7512). A process holds two parts at most: of three files, the first has been received."""
_sent = WeakKeyDictionary[Connection, deque[BinaryIO]]()


@dataclass(eq=False)
class Process:
    """A process, as the one that started it sees it."""

    device: str
    running: subprocess.Popen[bytes]
    connection: Connection

    @classmethod
    def start(cls, device: str, threads: int) -> Process:
        """Start a process that waits for its model, with so many threads, and no GPU but its own."""
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        environment |= {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
        if device.startswith("cuda"):
            number = device.partition(":")[2]
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            gpu = visible.split(",")[int(number)].strip() if visible else number
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        command = f"from {__name__} import serve; serve({theirs.fileno()}, {os.getpid()})"
        with theirs:
            running = subprocess.Popen(
                [sys.executable, "-P", "-c", command],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=environment,
                start_new_session=True,  # a terminal's Ctrl-C is for the process that started it
            )
        return cls(device, running, Connection(ours.detach()))

    def end(self, patience: float = 0) -> str:
        """End it, whatever it does; how it ended, if it does so within some seconds."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):  # a socket closes a moment before its process has ended
            self.running.wait(patience)
        code = self.running.poll()
        self.running.kill()
        self.running.wait()
        if code is None:
            return "it stopped answering"
        return f"it ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


class ProcessEngine(WorkerPool[Process]):
    """A process for each of several devices; jobs without a model are done here.

    Args:
        devices: What each process computes on, all GPUs or all `cpu`.
        opener: Loads their model.
        store: Holds what a backend converts; only this process uses it.
    """

    kind = "local"
    held = 2

    def __init__(self, devices: Sequence[str], opener: Opener, store: Store) -> None:
        super().__init__(len(devices))
        self._devices, self._opener, self._store = list(devices), opener, store
        self._prepared: Path | None = None

    @override
    def load(self, parts: int) -> None:
        if not self._workers and (artifact := self._opener.prepare(self._store)):
            self._prepared = artifact.folder.absolute()
        super().start(parts)

    @override
    def start(self, parts: int) -> None:
        """Do nothing: this process does jobs without a model."""

    @override
    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        if isinstance(job, PartJob):
            return (PartResult(part, job.function(part.read(), bar), self.kind) for part in parts)
        return super().each(job, parts, bar)

    @override
    def _start_worker(self) -> Process:
        device = self._devices.pop(0)
        process = Process.start(device, max(machine.threads() // self.workers, 1))
        seen_as = "cuda:0" if device.startswith("cuda") else device  # it sees no other GPU
        model = replace(self._opener.model, device=seen_as)
        self._send(process, (replace(self._opener, model=model), self._prepared))
        return process

    @override
    def _give(self, worker: Process, task: Task) -> None:
        self._send(worker, (self._job, task.inputs))

    def _send(self, process: Process, content: Content) -> None:
        with suppress(OSError):  # it is dead, which `_wait` finds too
            send(process.connection, content)

    @override
    def _wait(self, seconds: float) -> tuple[Process, Any] | None:
        processes = {process.connection: process for process in self._workers}
        for connection in wait(list(processes), seconds):
            assert isinstance(connection, Connection)
            process = processes[connection]
            try:
                news = receive(connection)
            except (EOFError, OSError):
                return process, WorkerDeath(process.end(PATIENCE))
            if isinstance(news, BaseException):
                raise news
            return process, (*news, process.device) if isinstance(news, tuple) else news
        return None

    @override
    def _name_silent(self, worker: Process, state: WorkerState, seconds: float) -> None:
        if not state.started and seconds > START_SECONDS:
            raise InputError(
                f"the process for {worker.device} has not loaded its model in {START_SECONDS:.0f} s",
                fix="name one device in engine.devices, or see what the process wrote above",
            )
        log.warning(
            "nothing from process %d (%s) for %.0f s: it is stopped, its device hangs, or it computes a long "
            "while; 'kill -9 %d' gives its work to another one",
            worker.running.pid, worker.device, seconds, worker.running.pid,
        )  # fmt: skip

    @override
    def _end(self, worker: Process) -> None:
        worker.end()
        self._devices.append(worker.device)


def serve(descriptor: int, parent: int) -> None:
    """Be a process of the engine: load the model that comes first, then do one part after the other."""
    end_with(parent)
    os.dup2(2, 1)  # stdout is for what a command prints
    connection = Connection(descriptor)
    tally = _ReportingTally(connection)
    try:
        for module in machine.LAZY:
            importlib.import_module(module)
        opener, prepared = receive(connection)
        model = opener.load(prepared)
        send(connection, None)
        while True:
            job, inputs = receive(connection)
            (outputs,) = job(iter([inputs]), model, tally)
            send(connection, (outputs, tally.take()))
    except BaseException as error:  # an EOFError at the end, which nobody reads
        _send_error(connection, error)
    os._exit(1)


def _send_error(connection: Connection, error: BaseException) -> None:
    """Send an error; one that cannot be pickled, or not be read again, in words."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = ChildProcessError(f"{type(error).__name__}: {error}")
    with suppress(OSError):
        send(connection, error)


class _ReportingTally(Tally):
    """A tally that is sent now and then."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._reported = connection, time.monotonic()

    @override
    def update(self, n: int = 1) -> None:
        super().update(n)
        if time.monotonic() - self._reported > PROGRESS_SECONDS:
            self._reported = time.monotonic()
            send(self._connection, self.take())


def send(connection: Connection, content: Content) -> None:
    """Send an object, with its arrays, in shared memory if it is not short."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(content, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    if not buffers and len(pickled) <= SHORT:
        connection.send(pickled)
        return
    pieces = [memoryview(pickled), *(buffer.raw() for buffer in buffers)]
    connection.send([piece.nbytes for piece in pieces])
    opened = _sent.setdefault(connection, deque())
    opened.append(machine.nameless_file())
    for piece in pieces:
        opened[-1].seek(-opened[-1].tell() % ALIGNED, os.SEEK_CUR)
        opened[-1].write(piece)
    opened[-1].flush()
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as copy:
        socket.send_fds(copy, [b"\0"], [opened[-1].fileno()])
    while len(opened) > OPEN:
        opened.popleft().close()


def receive(connection: Connection) -> Content:
    """The next object that was sent; the memory of its arrays is freed with them."""
    sizes = connection.recv()
    if isinstance(sizes, bytes):
        return pickle.loads(sizes)
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as copy:
        _, descriptors, *_ = socket.recv_fds(copy, 1, 1)
    if not descriptors:
        raise EOFError
    memory = memoryview(mmap.mmap(descriptors[0], 0))
    os.close(descriptors[0])
    pieces, start = [], 0
    for size in sizes:
        start += -start % ALIGNED
        pieces.append(memory[start : start + size])
        start += size
    return pickle.loads(pieces[0], buffers=pieces[1:])
