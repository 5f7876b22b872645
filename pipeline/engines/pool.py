"""An engine of workers in other processes: which worker does which part, and what happens when one dies."""

from __future__ import annotations

import collections
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from typing import ClassVar, Generic, NamedTuple, TypeVar

from typing_extensions import override

from pipeline.core.display import Bar
from pipeline.engines.engine import Content, Engine, Job, Part, PartResult

log = logging.getLogger(__name__)

LOSSES = 3  # workers lost at one part, or as they start, that end the run

Worker = TypeVar("Worker", bound=Hashable)


class Task(NamedTuple):
    """A part, and its inputs in the form that workers are sent."""

    part: Part
    inputs: Content


class WorkerDeath(NamedTuple):
    """What is known of a worker's death."""

    reason: object


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
    """Workers that hold the model and do parts of a job. If one dies, others do its parts.

    Attributes:
        held: The parts that a worker has at once: the one that it computes, and those that it prepares.
    """

    held: ClassVar[int] = 1

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._starting: set[Worker] = set()
        self._tasks: dict[Worker, collections.deque[Task]] = {}  # of each worker that has started
        self._ready = collections.deque[Task]()
        self._losses = collections.Counter[Part | None]()

    @abstractmethod
    def _start_worker(self) -> Worker:
        """Start a worker, which loads the model if `load` was called."""

    @abstractmethod
    def _begin(self, job: Job, bar: Bar) -> None:
        """Make a job known."""

    @abstractmethod
    def _pack(self, inputs: Content) -> Content:
        """The inputs of a part in the form that workers are sent."""

    @abstractmethod
    def _give(self, worker: Worker, task: Task) -> None:
        """Have a worker do a task after those that it has."""

    def _give_no_more(self, worker: Worker) -> None:
        """Tell a worker that it has all its tasks."""
        return

    @abstractmethod
    def _wait(self) -> tuple[Worker, Content]:
        """The next news of a worker: `WorkerDeath`; None when it has started; or what came of its first task.

        That is the outputs, the items that the job counted since the last news, and a name for the node.
        Errors of the job, and of loading the model, are raised.
        """

    @abstractmethod
    def _end(self, worker: Worker) -> None:
        """End a worker that may be at work, or dead already."""

    @override
    def start(self, parts: int) -> None:
        self._hire(min(self.workers, parts))
        while not self._tasks:
            self._next()

    @override
    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        """At most one part more than workers hold is in memory. The loss of many workers ends the run."""
        coming = iter(parts)
        todo = collections.deque(itertools.islice(coming, self.workers))
        self._losses.clear()
        self._begin(job, bar)
        try:
            while todo or self._ready or any(self._tasks.values()):
                self._hire(min(self.workers, len(todo) + len(self._ready) + self._given))
                while todo and len(self._ready) <= self.held * len(self._tasks) - self._given:
                    part = todo.popleft()
                    todo.extend(itertools.islice(coming, 1))  # not all at once: sizes may follow the speed
                    self._ready.append(Task(part, self._pack(part.read())))
                self._hand_out(len(todo))
                if not todo and not self._ready:
                    for worker in self._tasks:
                        self._give_no_more(worker)
                finished = self._next()
                if finished:
                    done, progress = finished
                    bar.update(progress)
                    yield done
        finally:  # of a job that was stopped
            self._ready.clear()
            for worker in [worker for worker, tasks in self._tasks.items() if tasks]:
                self._dismiss(worker)

    @override
    def close(self) -> None:
        for worker in (*self._starting, *self._tasks):
            self._dismiss(worker)

    @property
    def _given(self) -> int:
        """How many tasks workers have."""
        return sum(map(len, self._tasks.values()))

    def _hire(self, wanted: int) -> None:
        """Start workers until there are as many as wanted, including those that have not started yet."""
        while len(self._starting) + len(self._tasks) < wanted:
            self._starting.add(self._start_worker())

    def _hand_out(self, more: int) -> None:
        """Give the tasks that are ready to the workers that have the fewest; `more` parts will follow.

        A worker gets a second task only if there is a first one for each worker that is starting.
        """
        while self._ready and self._tasks:
            worker = min(self._tasks, key=lambda worker: len(self._tasks[worker]))
            held = len(self._tasks[worker])
            if held == self.held or (held and len(self._ready) + more <= len(self._starting)):
                return
            task = self._ready.popleft()
            self._tasks[worker].append(task)
            self._give(worker, task)

    def _next(self) -> tuple[PartResult, int] | None:
        """Wait for news of one worker: the finished part with its progress; None if none was finished."""
        worker, news = self._wait()
        if isinstance(news, WorkerDeath):
            tasks = self._dismiss(worker)  # it may be alive but out of reach
            self._count_loss(tasks[0].part if tasks else None, news.reason)
            self._ready.extendleft(reversed(tasks))
            return None
        if news is None:
            self._starting.discard(worker)
            self._tasks[worker] = collections.deque()
            return None
        outputs, progress, node = news
        return PartResult(self._tasks[worker].popleft().part, outputs, node), progress

    def _dismiss(self, worker: Worker) -> collections.deque[Task]:
        """End a worker; the tasks that it had."""
        self._end(worker)
        self._starting.discard(worker)
        return self._tasks.pop(worker, collections.deque())

    def _count_loss(self, part: Part | None, reason: object) -> None:
        self._losses[part] += 1
        where = f"at rows {part.start} to {part.stop}" if part else "as it started"
        if self._losses[part] >= LOSSES:
            raise ChildProcessError(f"a worker died {where}, {LOSSES} times; the last one: {reason}")
        log.warning("a worker died %s; another one does its work", where)
