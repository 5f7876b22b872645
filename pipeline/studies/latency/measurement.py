"""Measures what one query of a finished result costs, and keeps the record in its folder.

record, = measure(["results/A"], queries=200)
record.whole.p95, record.memory.resident
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from pipeline.config import Config
from pipeline.config.files import apply_override, load_configs, make_config
from pipeline.config.settings import Section
from pipeline.config.stages import ServerSettings
from pipeline.core import installation, machine
from pipeline.core.errors import InputError
from pipeline.core.records import Facts, Int64
from pipeline.core.result_records import Hardware, without_part
from pipeline.core.subprocesses import last_line
from pipeline.encoders.opener import Opener
from pipeline.results.folder import CollectionResult
from pipeline.results.result import read_result
from pipeline.retrievers.retriever import open_ranking
from pipeline.run.benchmark import Benchmark, Session
from pipeline.storage.whole_files import (
    MANIFEST,
    METRICS,
    SUITE,
    temporary_folder,
    write_checksums,
    write_json,
)
from pipeline.studies.latency.process import TOP, Task
from pipeline.studies.latency.record import LATENCY, LatencyRecord

WARM_UP = 10  # queries
SERVE = "from pipeline.studies.latency.process import serve; serve()"


def measure(
    targets: Sequence[str | Path],
    *,
    queries: int = 200,
    concurrency: Sequence[int] = (1,),
    threads: int | None = None,
    overrides: Sequence[str] = (),
) -> list[LatencyRecord]:
    """Answer real queries one at a time, in a process of its own for each result, and keep the records.

    Args:
        targets: Configs whose results are finished, or result folders, of one collection or of a suite.
        queries: How many are timed, at most.
        concurrency: Numbers of clients that ask at once.
        threads: How many threads libraries may use; None is their default.
        overrides: `key.path=value` strings.

    Returns:
        The record of each collection's result.

    Raises:
        InputError: A result is not finished, its index is not in the cache, or its kind is not served.
    """
    # all are checked before the first is measured
    results = [each for target in targets for each in _results_of(Path(target), overrides)]
    with Session() as session:
        planned = [(Benchmark(config, session), result) for config, result in results]
        for benchmark, result in planned:
            _check(benchmark, result)
        return [
            _measure_one(benchmark, result, queries, sorted(set(concurrency)), threads)
            for benchmark, result in planned
        ]


def _results_of(target: Path, overrides: Sequence[str]) -> Iterator[tuple[Config, CollectionResult]]:
    """The results that a config or a folder stands for, each with the config that serves it."""
    if target.is_file():
        for config in load_configs([target], overrides):
            folder = Path(config.output) / config.name
            if not any((folder / name).is_file() for name in (METRICS, SUITE)):
                raise InputError(
                    f"{target}: no result {folder}",
                    allowed="a config whose benchmark was run: its index is used",
                    fix=f"do this first: benchmarco run {target}",
                )
            members = config.members or {"": config}
            for result in read_result(folder).collections:
                yield members.get(result.name, config), result
        return
    for result in read_result(target).collections:
        raw = copy.deepcopy(result.manifest.config)
        for override in overrides:
            apply_override(raw, override)
        given = [*overrides, "output"]  # nothing is written but the record, into the folder
        yield make_config(raw, result.folder / MANIFEST, given=given), result


def _check(benchmark: Benchmark, result: CollectionResult) -> None:
    """Refuse a result of other settings, and one whose artifacts are not in the cache."""
    searches = [stage for role, stage in benchmark.stages.items() if without_part(role) == "search"]
    stages = {role for stage in searches for role in stage.needs if without_part(role) != "queries"}
    absent = [role for role in sorted(stages) if not benchmark.store.find(benchmark.recipes[role])]
    problem = f"its {' and '.join(absent)} are not in the cache {benchmark.store.root}" if absent else ""
    if benchmark.recipes["evaluate"].key != result.key:
        problem = "it is a result of other settings or data than its config has now"
    if problem:
        raise InputError(
            f"{result.folder}: {problem}",
            allowed="a result whose index is in the cache",
            fix="run its config again; what is in the cache is not computed again",
        )


def _measure_one(
    benchmark: Benchmark, result: CollectionResult, queries: int, concurrency: list[int], threads: int | None
) -> LatencyRecord:
    for source in benchmark.retriever.sources:
        if isinstance(source, Opener):
            source.prepare(benchmark.store)  # conversion is no part of a cold start
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    if threads:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
        environment |= dict.fromkeys((*names, "NUMBA_NUM_THREADS"), str(threads))
    with temporary_folder() as folder:
        task = _task(benchmark, queries, concurrency, folder / "figures")
        done = subprocess.run(
            [sys.executable, "-P", "-c", SERVE],
            input=pickle.dumps(task),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode:
            last = last_line(done.stderr.decode(errors="replace"))
            raise RuntimeError(f"the measuring process ended with {done.returncode}: {last}")
        answer: Facts = json.loads(task.answer.read_bytes())
    if refusal := answer.get("refusal"):
        raise InputError(**refusal)
    record = LatencyRecord.model_validate(
        {
            **answer["figures"],
            "name": result.record.name,
            "key": result.key,
            "hardware": Hardware.model_validate(machine.hardware()),
            "versions": installation.versions(),
            "bytes_per_passage": result.record.cost.bytes_per_passage,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )
    write_json(result.folder / LATENCY, record.model_dump(mode="json"))
    write_checksums(result.folder, [LATENCY])
    return record


def _task(benchmark: Benchmark, count: int, concurrency: list[int], answer: Path) -> Task:
    """Queries, judged ones if any are, evenly spread; two joined warm up, so that none is asked twice."""
    collection = benchmark.collection
    judged: Int64 = np.unique(collection.qrels.queries)
    if not len(judged):
        judged = np.arange(len(collection.queries))
    rows = judged[np.linspace(0, len(judged) - 1, min(count, len(judged))).round().astype(np.int64)]
    texts = [collection.queries.texts[row].as_py() for row in rows.tolist()]

    def for_clients(section: Section) -> Section:
        """The section of a model whose server, if it has one, is asked by all clients at once."""
        if isinstance(section, ServerSettings):
            return section.model_copy(update={"concurrency": max(section.concurrency, *concurrency)})
        return section

    expected = None
    ranking = benchmark.retriever.ranking
    if benchmark.store.find(benchmark.recipes[ranking]):
        top = open_ranking(benchmark.ensure(ranking)).passages[rows, :TOP].tolist()
        expected = [[passage for passage in passages if passage >= 0] for passages in top]
    return Task(
        config=benchmark.resolved_config.with_models(for_clients),
        answer=answer,
        driver=os.getpid(),
        started=time.monotonic(),
        warm_up=[f"{texts[i % len(texts)]} {texts[(i + 1) % len(texts)]}" for i in range(WARM_UP)],
        queries=texts,
        expected=expected,
        concurrency=concurrency,
    )
