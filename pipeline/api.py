"""The functions for other programs that run benchmarks, and say what they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config import Config, of_each_collection
from pipeline.config.files import as_config
from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.results.result import Result
from pipeline.run.benchmark import Session
from pipeline.run.running import Outcome, prepare, run_each

if TYPE_CHECKING:
    from pipeline.run.forecast import Forecast


def run_benchmark(
    config: Config | Mapping[str, object] | str | Path,
    *,
    output: str | Path | None = None,
    fresh: bool = False,
    progress: Progress = silent,
) -> Result:
    """Run one benchmark: load, encode, index, search, evaluate, reusing every artifact whose key matches.

    Args:
        config: From `load_config`; or a config file, or a dictionary of its sections.
        output: Folder of result folders; None is the config's `output`.
        fresh: Ignore the cache and recompute everything.
        progress: Opens progress bars; none by default.

    Returns:
        The result, with what is in its folder; of a suite with the result of each collection, and with what
        stopped those that failed.

    Raises:
        InputError: The config, the data or the model does not allow it.
    """
    (outcome,) = run_benchmarks([as_config(config)], output=output, fresh=fresh, progress=progress)
    if outcome.error:
        raise outcome.error
    assert outcome.result is not None
    return outcome.result


def run_benchmarks(
    configs: Sequence[Config],
    *,
    output: str | Path | None = None,
    fresh: bool = False,
    progress: Progress = silent,
) -> Iterator[Outcome]:
    """Run several benchmarks one after the other; see `run_benchmark`.

    All are checked by this call, before the first is run. One that fails later does not stop those after it.

    Args:
        configs: From `load_configs`; each with a result folder of its own.
        output: Folder of result folders; None is each config's `output`.
        fresh: Ignore the cache and recompute everything, once: benchmarks share what this call computes.
        progress: Opens progress bars, each labelled with its benchmark's number.

    Returns:
        The outcome of each; a benchmark runs when the iterator reaches it.

    Raises:
        InputError: One of them cannot run, as far as it can be known beforehand; none has been run.
    """
    with ExitStack() as stack:
        session = stack.enter_context(Session(fresh))
        runs = prepare(configs, output, progress, session)
        stack.pop_all()  # the session is closed after the last outcome
    return run_each(runs, progress, session)


def forecast(
    configs: Sequence[Config], *, passages: int | None = None, probing: bool = False
) -> list[Forecast]:
    """Say what runs would do: what is cached, must be fetched and computed, and what that takes.

    Computes nothing but what `probing` asks for, and fetches nothing but small files that say what a
    repository on the hub holds.

    Args:
        configs: From `load_configs`; of one collection each, if `passages` are given.
        passages: Estimate time, memory and disk of whole runs on so many passages, which need not be there.
        probing: Run each config on a part of the built-in sample first, so that its stages are measured.

    Returns:
        A forecast for each, of a suite one for each collection. What several of them fetch is counted for the
        first.

    Raises:
        InputError: The data or a model cannot be found, or is not what it should be; or a config has several
            collections where the size of one is given.
    """
    from pipeline.run.forecast import forecast_each

    stated: list[int | None] = []
    for config in configs:
        suite = config.suite
        stated += [each.passages for each in suite.collections.values()] if suite else [None]
        if suite and passages:
            raise InputError(
                f"{config.name} has {len(config.members)} collections, and --passages is the size of one",
                allowed="configs of one collection",
                fix="leave out --passages: a suite says how many passages its collections have",
            )
    with Session() as session:
        each = zip(of_each_collection(configs), stated, strict=True)
        return forecast_each(each, session, passages, probing)
