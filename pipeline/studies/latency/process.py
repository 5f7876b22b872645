"""The process that answers queries and is timed; `serve` is its main function.

It is a process of its own, so that the cold start, its memory and its threads are those of serving alone.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.config import Config
from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.kernels import loaded_kernels
from pipeline.core.records import Facts
from pipeline.core.subprocesses import end_with

TOP = 10  # passages that are compared with those of the result
WORK = 10_000  # numbers that the fixed piece of work adds up
TRIPS = 20  # requests that measure the network


@dataclass(frozen=True)
class Task:
    """What the process is told."""

    config: Config  # with the backends that are used
    answer: Path  # the file for the figures
    driver: int  # the process that waits for them
    started: float  # when this process was started, by the monotonic clock
    warm_up: list[str]  # queries that are answered first
    queries: list[str]  # those that are timed
    # For each of them its first passages in the result; None where that is not known.
    expected: list[list[int]] | None
    concurrency: list[int]  # the numbers of clients


class Answer(NamedTuple):
    """One answered query: seconds of its stages and of the whole, first passages, repeated requests."""

    stages: dict[str, float]
    whole: float
    top: list[int]
    retries: int


def run(task: Task) -> Facts:
    """Load, warm up, and time the queries."""
    from pipeline.run.benchmark import Session
    from pipeline.studies.latency.query_path import INDEX, MODEL, Clock, path_of

    meter = machine.Meter()
    with Session() as session:
        benchmark = session.benchmark(task.config)
        path = path_of(benchmark.retriever, benchmark)
        loading: dict[str, float] = {MODEL: 0.0, INDEX: 0.0}
        memory = dict(loading)
        at, held = time.monotonic(), machine.resident_mb()
        start = at - task.started
        for part in path.load(task.warm_up[0]):
            now, holds = time.monotonic(), machine.resident_mb()
            loading[part] += now - at
            memory[part] += holds - held
            at, held = now, holds
        cold = {"seconds": at - task.started, "start": start, **loading}

        def answer(query: str) -> Answer:
            clock = Clock()
            started = time.perf_counter()
            ranking = path.answer(query, clock)
            seconds = time.perf_counter() - started
            top = [passage for passage in ranking.passages[0, :TOP].tolist() if passage >= 0]
            return Answer(clock.seconds, seconds, top, clock.retries)

        def try_to_answer(query: str) -> Answer | InputError:
            try:
                return answer(query)
            except InputError as error:  # a server that is overloaded
                return error

        warm = [answer(query).whole for query in task.warm_up]
        loads: list[Facts] = []
        works: list[float] = []
        for clients in task.concurrency:
            tried, seconds = _ask(try_to_answer, task.queries, clients, works)
            answers = [each for each in tried if isinstance(each, Answer)]
            if not answers:
                raise next(each for each in tried if isinstance(each, InputError))
            stages = {name: [each.stages[name] for each in answers] for name in answers[0].stages}
            stages["whole"] = [each.whole for each in answers]
            retries = sum(each.retries for each in answers)
            counts = {"errors": len(tried) - len(answers), "retries": retries}
            loads.append({"concurrency": clients, "seconds": seconds, "stages": stages, **counts})
        pairs = zip(tried, task.expected or (), strict=False)
        same = [set(each.top) == set(top) for each, top in pairs if isinstance(each, Answer)]
        trips = _round_trips(benchmark.retriever)
        resident = machine.resident_mb()
        figures: Facts = meter.figures()
        gpu: Facts = figures.get("gpu", {})
    return {
        "cold_start": cold,
        "warm_up": [len(warm), max(warm) * 1000],
        "loads": loads,
        "work": works,
        "agreement": sum(same) / len(same) if same else None,
        "round_trips": trips,
        "memory": {
            "resident": resident,
            "peak": figures["peak_rss_mb"],
            "model": memory[MODEL],
            "index": memory[INDEX],
            "gpu": gpu.get("peak_mb"),
        },
        "threads": machine.threads(),
        "kernels": {f"{each.library}, {each.blas}": each.core for each in loaded_kernels()},
    }


def _ask(
    answer: Callable[[str], Answer | InputError], queries: Sequence[str], clients: int, works: list[float]
) -> tuple[list[Answer | InputError], float]:
    """The answers to all queries by so many clients, in order, and the seconds for all of them.

    With one client, a fixed piece of work is timed before each query: how its times vary is the machine's
    doing alone.
    """
    if clients == 1:
        answers, seconds = [], 0.0
        for query in queries:
            started = time.perf_counter()
            sum(range(WORK))
            works.append(time.perf_counter() - started)
            started = time.perf_counter()
            answers.append(answer(query))
            seconds += time.perf_counter() - started
        return answers, seconds
    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(answer, queries))
    return answers, time.perf_counter() - started


def _round_trips(retriever: Any) -> Facts | None:
    """Requests to the first server of a retriever for which it computes nothing; None without a server."""
    source = getattr(retriever, "source", None)
    if source is not None and source.served and hasattr(encoder := source.connect(), "client"):
        client = encoder.client
        try:
            client.run(client.round_trip())  # opens the connection
            trips = [client.run(client.round_trip()) for _ in range(TRIPS)]
        finally:
            encoder.close()
        return {"url": client.url, "seconds": trips}
    inner = getattr(retriever, "parts", ())
    return next(filter(None, map(_round_trips, inner)), None)


def serve() -> None:
    """Read a pickled task on stdin; write the figures, or the refusal of bad input, to its file as JSON."""
    task: Task = pickle.load(sys.stdin.buffer)
    end_with(task.driver)
    answer: Facts
    try:
        answer = {"figures": run(task)}
    except InputError as error:
        answer = {"refusal": {"found": error.found, "allowed": error.allowed, "fix": error.fix}}
    task.answer.write_text(json.dumps(answer), encoding="utf-8")
