"""Processes of this machine, each with a device and a copy of the model: `engine.kind: local` with several.

A process is sent messages over a socket: the model, then for each job the job, its parts and None. The next
part is sent while it computes one. Arrays travel in shared memory that has no name, so nothing is left of
them, however the processes end. A process ends when its socket closes, and where the system can do that,
with the process that started it.
"""

from __future__ import annotations

import importlib
import mmap
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, BinaryIO

from typing_extensions import override

from pipeline.core import machine
from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.subprocesses import end_with
from pipeline.encoders.opener import Opener
from pipeline.engines.engine import Content, Job, LocalEngine, Part, PartJob, PartResult, on_device
from pipeline.engines.pool import Tally, Task, WorkerDeath, WorkerPool
from pipeline.storage.store import Store

PATIENCE = 1.0  # seconds in which a process whose socket has closed ends
START_SECONDS = 900.0  # in which a process must have loaded its model
PROGRESS_SECONDS = 0.2  # between two reports of a process's progress
ALIGNED = 64  # arrays in shared memory begin at multiples of so many bytes


@dataclass(eq=False)
class Process:
    """A process, as the one that started it sees it.

    Attributes:
        has_job: Whether it waits for parts of a job.
        progress: The items that it reported since it last finished a part; they are taken back if it dies.
    """

    device: str
    running: subprocess.Popen[bytes]
    connection: Connection
    has_job: bool = False
    progress: int = field(default=0, init=False)
    started: float = field(default_factory=time.monotonic, init=False)

    @classmethod
    def start(cls, device: str, threads: int) -> Process:
        """Start a process that waits for its model, with so many threads, and no GPU but its own."""
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        environment |= {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
        if device != "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = visible_gpu(device)
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


def visible_gpu(device: str) -> str:
    """The value of CUDA_VISIBLE_DEVICES that leaves one of the GPUs that are visible here."""
    number = int(device.partition(":")[2])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return visible.split(",")[number].strip() if visible else str(number)


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
        self._job: Job | None = None
        self._bar: Bar | None = None

    @override
    def load(self, parts: int) -> None:
        if not self._tasks and (artifact := self._opener.prepare(self._store)):
            self._prepared = artifact.folder.absolute()
        super().start(parts)

    @override
    def start(self, parts: int) -> None:
        """Do nothing: this process does jobs without a model."""

    @override
    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        if isinstance(job, PartJob):
            return LocalEngine().each(job, parts, bar)
        return super().each(job, parts, bar)

    @override
    def _start_worker(self) -> Process:
        device = self._devices.pop(0)
        process = Process.start(device, max(machine.threads() // self.workers, 1))
        opener = on_device(self._opener, "cpu" if device == "cpu" else "cuda:0")
        self._send(process, (opener, self._prepared))
        return process

    @override
    def _begin(self, job: Job, bar: Bar) -> None:
        self._job, self._bar = job, bar

    @override
    def _pack(self, inputs: Content) -> Content:
        return (inputs,)

    @override
    def _give(self, worker: Process, task: Task) -> None:
        if not worker.has_job:
            self._send(worker, self._job)
            worker.has_job = True
        self._send(worker, task.inputs)

    @override
    def _give_no_more(self, worker: Process) -> None:
        if worker.has_job:
            self._send(worker, None)
            worker.has_job = False

    def _send(self, process: Process, content: Content) -> None:
        with suppress(OSError):  # it is dead, which `_wait` finds too
            send(process.connection, content)

    @override
    def _wait(self) -> tuple[Process, Any]:
        processes = {process.connection: process for process in (*self._starting, *self._tasks)}
        while True:
            news_of = wait(list(processes), START_SECONDS if self._starting else None)
            late = [each for each in self._starting if time.monotonic() - each.started > START_SECONDS]
            if late and not news_of:
                raise InputError(
                    f"the process for {late[0].device} has not loaded its model in {START_SECONDS:.0f} s",
                    fix="name one device in engine.devices, or see what the process wrote above",
                )
            for connection in news_of:
                assert isinstance(connection, Connection)
                process = processes[connection]
                try:
                    news = receive(connection)
                except (EOFError, OSError):
                    self._count(process, -process.progress)
                    return process, WorkerDeath(process.end(PATIENCE))
                if isinstance(news, BaseException):
                    raise news
                if not isinstance(news, int):
                    process.progress = 0
                    return process, None if news is None else (*news, process.device)
                self._count(process, news)

    def _count(self, process: Process, items: int) -> None:
        process.progress += items
        if self._bar and items:
            self._bar.update(items)

    @override
    def _end(self, worker: Process) -> None:
        worker.end()
        self._devices.append(worker.device)


def serve(descriptor: int, parent: int) -> None:
    """Be a process of the engine: load the model that comes first, then do one job after the other."""
    end_with(parent)
    os.dup2(2, 1)  # stdout is for what a command prints
    connection = Connection(descriptor)
    messages = queue.SimpleQueue[Content]()
    threading.Thread(target=_receive_all, args=(connection, messages), daemon=True).start()
    tally = _ReportingTally(connection)
    try:
        for module in machine.LAZY:
            importlib.import_module(module)
        opener, prepared = _next_of(messages)
        model = opener.load(prepared)
        send(connection, None)
        while True:
            job = _next_of(messages)
            # Part by part: a job may ask for the next part before it gives the outputs of one,
            # and the caller may send that part only after those outputs.
            for message in iter(lambda: _next_of(messages), None):
                (outputs,) = job(iter([message[0]]), model, tally)
                send(connection, (outputs, tally.take()))
    except BaseException as error:
        _send_error(connection, error)
    os._exit(1)


def _receive_all(connection: Connection, messages: queue.SimpleQueue[Content]) -> None:
    """Put each message into a queue; end this process once there can be no more."""
    while True:
        try:
            messages.put(receive(connection))
        except (EOFError, OSError):
            os._exit(1)
        except Exception as error:  # what a message names cannot be imported here
            messages.put(error)


def _next_of(messages: queue.SimpleQueue[Content]) -> Content:
    message = messages.get()
    if isinstance(message, Exception):
        raise message
    return message


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
    """Send an object; its arrays are put into shared memory."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(content, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    connection.send_bytes(pickled)
    connection.send([array.nbytes for array in arrays])
    if not arrays:
        return
    with _nameless_file() as file:
        for array in arrays:
            file.seek(-file.tell() % ALIGNED, os.SEEK_CUR)
            file.write(array)
        file.write(b"\0")  # so that there is something to map
        file.flush()
        with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as copy:
            socket.send_fds(copy, [b"\0"], [file.fileno()])


def receive(connection: Connection) -> Content:
    """The next object that was sent; the memory of its arrays is freed with them."""
    pickled, sizes = connection.recv_bytes(), connection.recv()
    if not sizes:
        return pickle.loads(pickled)
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as copy:
        _, descriptors, *_ = socket.recv_fds(copy, 1, 1)
    if not descriptors:
        raise EOFError
    memory = memoryview(mmap.mmap(descriptors[0], 0))
    os.close(descriptors[0])
    arrays, start = [], 0
    for size in sizes:
        start += -start % ALIGNED
        arrays.append(memory[start : start + size])
        start += size
    return pickle.loads(pickled, buffers=arrays)


def _nameless_file() -> BinaryIO:
    """A file in memory, where the system has such files."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("benchmarco"), "w+b")
    return tempfile.TemporaryFile()
