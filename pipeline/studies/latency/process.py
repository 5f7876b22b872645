"""The process that answers queries and is timed; `serve` is its main function.

It is a process of its own, so that the cold start, its memory and its threads are those of serving alone.
"""

from __future__ import annotations

import pickle
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import to_json

from pipeline.config import Config
from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.kernels import loaded_kernels
from pipeline.core.records import Facts
from pipeline.core.subprocesses import end_with
from pipeline.retrievers.retriever import Retriever
from pipeline.run.benchmark import Benchmark, Session
from pipeline.storage.store import Store
from pipeline.studies.latency.query_path import INDEX, MODEL, Clock, load
from pipeline.studies.latency.record import ENCODE, WHOLE, Load, Quantiles, RoundTrip, Stability

TOP = 10  # passages that are compared with those of the result
WORK = 10_000  # numbers that the fixed piece of work adds up
SLOWER, P_VALUE = 1.1, 0.05  # halves differ if their medians do by more than this, and a test says so
UNEVEN = 1.3  # the fixed work's p95 over its median, on a machine that other work disturbs
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


Answered = tuple[Clock, list[int]]
"""What a query took, and its first passages."""


def run(task: Task) -> Facts:
    """Load, warm up, and time the queries; returns fields of `LatencyRecord`."""
    meter = machine.Meter()
    with Session() as session:
        benchmark = Benchmark(task.config, session)
        loading: dict[str, float] = {MODEL: 0.0, INDEX: 0.0}
        memory = dict(loading)
        at, held = time.monotonic(), machine.resident_mb()
        start = at - task.started

        def loaded(part: str) -> None:
            nonlocal at, held
            now, holds = time.monotonic(), machine.resident_mb()
            loading[part] += now - at
            memory[part] += holds - held
            at, held = now, holds

        rank, _ = load(benchmark.retriever, benchmark, task.warm_up[0], loaded)
        cold = {"seconds": at - task.started, "start": start, **loading}

        def answer(query: str) -> Answered:
            clock = Clock()
            with clock.stage(WHOLE):
                ranking = rank(query, clock)
            return clock, [passage for passage in ranking.passages[0, :TOP].tolist() if passage >= 0]

        warm = [answer(query)[0].seconds[WHOLE] for query in task.warm_up]
        works: list[float] = []
        asked = [(clients, *_ask(answer, task.queries, clients, works)) for clients in task.concurrency]
        trips = _round_trips(benchmark.retriever, benchmark.store)
        resident, threads = machine.resident_mb(), machine.threads()
        kernels = {f"{each.library}, {each.blas}": each.core for each in loaded_kernels()}
        figures: Facts = meter.figures()
    gpu: Facts = figures.get("gpu", {})
    used = {"resident": resident, "peak": figures["peak_rss_mb"], "gpu": gpu.get("peak_mb"), **memory}
    # what imports SciPy comes last, so that it is not in the memory, nor its kernels among those used
    loads = [_load_of(*each) for each in asked]
    pairs = zip(asked[-1][1], task.expected or (), strict=False)
    same = [set(each[1]) == set(top) for each, top in pairs if not isinstance(each, InputError)]
    whole = [each[0].seconds[WHOLE] for each in asked[0][1] if not isinstance(each, InputError)]
    network = None
    if trips:
        trip = Quantiles.of(trips["seconds"])
        share = min(trip.p50 / loads[0].stages.get(ENCODE, trip).p50, 1.0)
        network = RoundTrip(url=trips["url"], round_trip=trip, share=round(share, 4))
    return {
        "cold_start": {name: round(seconds, 3) for name, seconds in cold.items()},
        "warm_up": (len(warm), round(max(warm) * 1000, 3)),
        "loads": loads,
        "stability": _stability(whole, works),
        "agreement": sum(same) / len(same) if same else None,
        "network": network,
        "memory": {name: megabytes and round(megabytes, 1) for name, megabytes in used.items()},
        "threads": threads,
        "kernels": kernels,
    }


def _ask(
    answer: Callable[[str], Answered], queries: Sequence[str], clients: int, works: list[float]
) -> tuple[list[Answered | InputError], float]:
    """The answers to all queries by so many clients, in order, and the seconds for all of them.

    With one client, a fixed piece of work is timed before each query: how its times vary is the machine's
    doing alone.

    Raises:
        InputError: No query was answered.
    """

    def try_to_answer(query: str) -> Answered | InputError:
        try:
            return answer(query)
        except InputError as error:  # a server that is overloaded
            return error

    if clients == 1:
        answers, seconds = [], 0.0
        for query in queries:
            started = time.perf_counter()
            sum(range(WORK))
            works.append(time.perf_counter() - started)
            started = time.perf_counter()
            answers.append(try_to_answer(query))
            seconds += time.perf_counter() - started
    else:
        started = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            answers = list(pool.map(try_to_answer, queries))
        seconds = time.perf_counter() - started
    errors = [each for each in answers if isinstance(each, InputError)]
    if len(errors) == len(answers):
        raise errors[0]
    return answers, seconds


def _load_of(clients: int, answers: Sequence[Answered | InputError], seconds: float) -> Load:
    clocks = [each[0] for each in answers if not isinstance(each, InputError)]
    return Load(
        concurrency=clients,
        queries=len(clocks),
        stages={name: Quantiles.of([clock.seconds[name] for clock in clocks]) for name in clocks[0].seconds},
        queries_per_second=round(len(clocks) / seconds, 3),
        errors=len(answers) - len(clocks),
        retries=sum(clock.retries for clock in clocks),
    )


def _round_trips(retriever: Retriever, store: Store) -> Facts | None:
    """Requests to the first server of a retriever for which it computes nothing; None without a server."""
    for source in retriever.sources:
        if source.served and hasattr(encoder := source.open(store), "client"):
            client = encoder.client
            try:
                client.run(client.round_trip())  # opens the connection
                trips = [client.run(client.round_trip()) for _ in range(TRIPS)]
            finally:
                encoder.close()
            return {"url": client.url, "seconds": trips}
    return None


def _stability(seconds: list[float], works: list[float]) -> Stability:
    """Whether the machine was quiet, and the halves of the queries, in the order of time, alike."""
    from scipy.stats import mannwhitneyu

    middle = len(seconds) // 2
    halves = [seconds[:middle] or seconds, seconds[middle:]]
    first, second = (statistics.median(half) * 1000 for half in halves)
    p = float(mannwhitneyu(*halves).pvalue)
    work = Quantiles.of(works or [0.0])
    runs = []
    if max(first, second) > SLOWER * min(first, second) and p < P_VALUE:
        runs.append(f"the halves of the queries differ, {first:,.2f} and {second:,.2f} ms (median)")
    if work.p95 > UNEVEN * work.p50:
        runs.append(f"the same work takes {work.p50:.3f} ms, and {work.p95:.3f} (p95)")
    return Stability(
        first_half=round(first, 4),
        second_half=round(second, 4),
        p=p,
        work_p50=work.p50,
        work_p95=work.p95,
        noisy="; ".join(runs),
    )


def serve() -> None:
    """Read a pickled task on stdin; write the figures, or the refusal of bad input, to its file as JSON."""
    task: Task = pickle.load(sys.stdin.buffer)
    end_with(task.driver)
    answer: Facts
    try:
        answer = {"figures": run(task)}
    except InputError as error:
        answer = {"refusal": {"found": error.found, "allowed": error.allowed, "fix": error.fix}}
    task.answer.write_bytes(to_json(answer))
