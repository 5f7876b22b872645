"""An engine of workers in other processes: which worker does which part, and what happens when one dies."""

from __future__ import annotations

import collections
import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Generic, NamedTuple, TypeVar

from typing_extensions import override

from pipeline.core.display import Bar
from pipeline.engines.base import Content, Engine, Job, Part, PartResult

log = logging.getLogger(__name__)

LOSSES = 3  # workers lost at one part, or in a row as they start, that end the run
LOOK = 5.0  # seconds between two looks at workers that give no news
SILENCE = 60.0  # seconds without news of a worker, after which it is named; then twice as many, and so on

Worker = TypeVar("Worker", bound=Hashable)


class Task(NamedTuple):
    """A part, and its inputs in the form that workers are sent."""

    part: Part
    inputs: Content


class WorkerDeath(NamedTuple):
    """What is known of a worker's death."""

    reason: object


@dataclass(eq=False)
class WorkerState:
    """What a worker does."""

    patience: float  # seconds of silence after which it is named
    started: bool = False  # whether it has loaded its model and takes tasks
    tasks: collections.deque[Task] = field(default_factory=collections.deque)
    # The items that it reported since it last finished a part; they are taken back if it dies.
    progress: int = 0
    # When it last gave news, or was given a task without having another.
    heard: float = field(default_factory=time.monotonic)


class Tally(Bar):
    """A progress bar that only counts."""

    _count = 0

    @override
    def update(self, n: int = 1) -> None:
        self._count += n

    def take(self) -> int:
        """What was counted since it was last taken."""
        count, self._count = self._count, 0
        return count


class WorkerPool(Engine, ABC, Generic[Worker]):
    """Workers that hold the model and do parts of a job. If one dies, others do its parts."""

    # The parts that a worker has at once: the one that it computes, and those that wait for it.
    held: ClassVar[int] = 1

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._workers: dict[Worker, WorkerState] = {}
        self._ready = collections.deque[Task]()
        self._losses = collections.Counter[Part | None]()
        self._bar: Bar = Tally()
        self._job: Content = None

    @abstractmethod
    def _start_worker(self) -> Worker:
        """Start a worker, which loads the model if `load` was called."""

    def _pack(self, content: Content) -> Content:
        """A job, or the inputs of a part, in the form that workers are sent."""
        return content

    @abstractmethod
    def _give(self, worker: Worker, task: Task) -> None:
        """Have a worker do a task after those that it has."""

    @abstractmethod
    def _wait(self, seconds: float) -> tuple[Worker, Content] | None:
        """The next news of a worker; None if there is none for some seconds.

        News are `WorkerDeath`; None when it has started; the items that a task has counted, an int; or what
        came of its first task: the outputs, the items counted since the last news, a name for the node.
        Errors of the job, and of loading the model, are raised.
        """

    @abstractmethod
    def _name_silent(self, worker: Worker, state: WorkerState, seconds: float) -> None:
        """Say that a worker has given no news for some seconds, though it starts or has tasks."""

    @abstractmethod
    def _end(self, worker: Worker) -> None:
        """End a worker that may be at work, or dead already."""

    @override
    def start(self, parts: int) -> None:
        while not any(state.started for state in self._workers.values()):
            self._next(parts)

    @override
    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        """At most one part more than workers hold is in memory. The loss of many workers ends the run."""
        coming = iter(parts)
        todo = collections.deque(itertools.islice(coming, self.workers))
        self._losses.clear()
        self._bar = bar
        self._job = self._pack(job)
        try:
            while todo or self._ready or self._given:
                started = sum(state.started for state in self._workers.values())
                while todo and len(self._ready) <= self.held * started - self._given:
                    part = todo.popleft()
                    todo.extend(itertools.islice(coming, 1))  # not all at once: sizes may follow the speed
                    self._ready.append(Task(part, self._pack(part.read())))
                self._hand_out(len(todo))
                if finished := self._next(len(todo) + len(self._ready) + self._given):
                    yield finished
        finally:  # of a job that was stopped
            self._ready.clear()
            for worker in [worker for worker, state in self._workers.items() if state.tasks]:
                self._dismiss(worker)

    @override
    def close(self) -> None:
        for worker in list(self._workers):
            self._dismiss(worker)

    @property
    def _given(self) -> int:
        """How many tasks workers have."""
        return sum(len(state.tasks) for state in self._workers.values())

    def _hand_out(self, more: int) -> None:
        """Give the tasks that are ready to the workers that have the fewest; `more` parts will follow.

        A worker gets a second task only if there is a first one for each worker that is starting.
        """
        started = [(worker, state) for worker, state in self._workers.items() if state.started]
        starting = len(self._workers) - len(started)
        while self._ready and started:
            worker, state = min(started, key=lambda pair: len(pair[1].tasks))
            held = len(state.tasks)
            if held == self.held or (held and len(self._ready) + more <= starting):
                return
            if not held:
                state.heard = time.monotonic()
            state.tasks.append(self._ready.popleft())
            self._give(worker, state.tasks[-1])

    def _next(self, parts: int) -> PartResult | None:
        """Start the workers that so many parts want and are missing, and wait for news of one.

        Returns:
            The part that it has finished; None if it has finished none.
        """
        while len(self._workers) < min(self.workers, parts):
            self._workers[self._start_worker()] = WorkerState(SILENCE)
        for worker, state in self._workers.items():
            silent = time.monotonic() - state.heard
            if silent > state.patience and (state.tasks or not state.started):
                state.patience *= 2
                self._name_silent(worker, state, silent)
        found = self._wait(LOOK)
        return self._take(*found) if found else None

    def _take(self, worker: Worker, news: Content) -> PartResult | None:
        """Take the news of a worker: the part that it has finished, None if it has finished none."""
        state = self._workers[worker]
        state.heard, state.patience = time.monotonic(), SILENCE
        if isinstance(news, WorkerDeath):
            self._dismiss(worker)  # it may be alive but out of reach
            self._bar.update(-state.progress)
            self._count_loss(state.tasks[0].part if state.tasks else None, news.reason)
            self._ready.extendleft(reversed(state.tasks))
        elif news is None:
            state.started = True
            del self._losses[None]
        elif isinstance(news, int):
            state.progress += news
            self._bar.update(news)
        else:
            outputs, progress, node = news
            state.progress = 0
            self._bar.update(progress)
            return PartResult(state.tasks.popleft().part, outputs, node)
        return None

    def _dismiss(self, worker: Worker) -> None:
        self._end(worker)
        del self._workers[worker]

    def _count_loss(self, part: Part | None, reason: object) -> None:
        self._losses[part] += 1
        times = self._losses[part]
        where = f"at rows {part.start} to {part.stop}" if part else "as it started"
        # All workers that start may be killed at once, as for want of memory, and the next ones start.
        if times >= (LOSSES if part else max(LOSSES, self.workers + 1)):
            raise ChildProcessError(f"a worker died {where}, {times} times; the last one: {reason}")
        log.warning("a worker died %s; another one does its work", where)
