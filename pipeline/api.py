"""What can another program call? Running a benchmark, and scoring a run file."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.artifacts import Store
from pipeline.benchmark import Benchmark
from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.progress import Progress, silent
from pipeline.results import Result, check_folder, write_result

if TYPE_CHECKING:
    from pipeline.metrics.evaluation import Evaluation

log = logging.getLogger(__name__)


def check_benchmark(config: Config, *, output: str | Path | None = None) -> None:
    """Refuse a benchmark that cannot run, computing nothing; `run_benchmark` does so first of all.

    Raises:
        InputError: As `run_benchmark`, as far as it can be known before the data is read.
    """
    check_folder(_result_folder(config, output))
    Benchmark(config, Store(Path(config.cache))).check()


def run_benchmark(
    config: Config, *, output: str | Path | None = None, fresh: bool = False, progress: Progress = silent
) -> Result:
    """Run one benchmark: load, encode, index, search, evaluate, reusing every artifact whose key matches.

    Args:
        config: From `load_config`.
        output: Folder of result folders; None is the config's `output`.
        fresh: Make every stage anew.
        progress: Opens progress bars; none by default.

    Returns:
        The result folder and what is in its `metrics.json`.

    Raises:
        InputError: The config, the data or the model does not allow it.
    """
    started = time.perf_counter()
    folder = _result_folder(config, output)
    check_folder(folder)
    benchmark = Benchmark(config, Store(Path(config.cache)), progress, fresh)
    stages = benchmark.run()
    return write_result(benchmark, stages, folder, time.perf_counter() - started)


def _result_folder(config: Config, output: str | Path | None) -> Path:
    return Path(output or config.output) / config.name


def describe_data(config: Config, progress: Progress = silent) -> dict[str, Any]:
    """What a config's collection holds; reads it into the cache if it is not there, and nothing else.

    Args:
        config: From `load_config`. Tokens are counted by its model's tokenizer, if that is here.
        progress: Opens progress bars; none by default.

    Returns:
        See `pipeline.data.describe`.

    Raises:
        InputError: The data cannot be found, or is not what it should be.
    """
    from pipeline.data import describe
    from pipeline.encoders import token_counter

    benchmark = Benchmark(config, Store(Path(config.cache)), progress)
    collection = benchmark.collection
    try:
        count_tokens = token_counter(benchmark.model)
    except InputError as error:
        log.warning("tokens are not counted: %s", error)
        count_tokens = None
    return describe(collection, count_tokens)


def evaluate(
    qrels: str | Path,
    run: str | Path,
    measures: str | Sequence[str] = ("ndcg@10", "mrr@10", "recall@100", "map@1000", "precision@10"),
    *,
    ignore_identical_ids: bool = False,
) -> Evaluation:
    """Score any TREC run with TREC or BEIR judgments; `.gz` is accepted.

    Args:
        qrels: Judgment file.
        run: Run file.
        measures: Names as in docs/measures.md, as a list or separated by commas.
        ignore_identical_ids: Drop documents whose id is the query's own.

    Returns:
        Values per query, means and 95% intervals.

    Raises:
        InputError: A file or a measure cannot be read.
    """
    from pipeline.metrics.evaluation import evaluate_files
    from pipeline.metrics.names import parse_all

    return evaluate_files(qrels, run, parse_all(measures), ignore_identical_ids)
