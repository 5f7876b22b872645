"""The functions for other programs: run benchmarks, say what they take, score run files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config import MEASURES, Config, of_each_collection
from pipeline.config.files import as_config
from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.results.result import Result
from pipeline.run.benchmark import Session
from pipeline.run.running import ConfigRun, Outcome, prepare, run_each

if TYPE_CHECKING:
    from pipeline.formats.given import QrelsLike
    from pipeline.metrics.evaluation import Evaluation
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


def evaluate_model(
    config: Config | Mapping[str, object] | str | Path,
    model: object,
    *,
    name: str | None = None,
    output: str | Path | None = None,
    progress: Progress = silent,
) -> Result:
    """Run one benchmark with a model that is an object of this process, such as one that is being trained.

    Its vectors are computed by every call and never cached, so that no result is of an earlier state of it.
    Each of its PyTorch modules is left in the mode, training or not, in which it was.

    Args:
        config: As for `run_benchmark`, of one collection. Of the section `model`, which a dictionary may
            leave out, `normalize`, `truncate_dim` and `vector_precision` are used. Instructions and lengths
            are the object's own.
        model: Has the methods `encode_queries` and `encode_corpus`, as FlagEmbedding's models; or
            `encode_query` and `encode_document`, or `encode`, as those of sentence-transformers. Each takes a
            list of texts and returns an array or tensor [texts, dimension].
        name: Of the result, in place of the config's: `step-1000`, for example.
        output: Folder of result folders; None is the config's `output`.
        progress: Opens progress bars; none by default.

    Returns:
        The result, with what is in its folder.

    Raises:
        InputError: The config, the data or the object does not allow it.
    """
    from pipeline.run.model_object import run_model

    return run_model(config_without_model(config), model, name, output, progress)


def config_without_model(config: Config | Mapping[str, object] | str | Path) -> Config:
    """A config whose model is an object: a dictionary may leave out the section `model`."""
    if isinstance(config, Mapping) and not config.keys() & {"model", "fuse"}:
        config = {**config, "model": {"backend": "bm25"}}  # which reads the collection and no model
    return as_config(config)


def run_benchmarks(
    configs: Sequence[Config],
    *,
    output: str | Path | None = None,
    fresh: bool = False,
    progress: Progress = silent,
) -> Iterator[Outcome]:
    """Run several benchmarks one after the other; each reuses what those before it computed.

    All are checked by this call, before the first is run, and collections are read for that. One that fails
    later does not stop those after it.

    Args:
        configs: From `load_configs`; each with a result folder of its own.
        output: Folder of result folders; None is each config's `output`.
        fresh: Ignore the cache and recompute everything, once: benchmarks share what this call computes.
        progress: Opens progress bars, each labelled with its benchmark's number and how many there are.

    Returns:
        The outcome of each; a benchmark runs when the iterator reaches it.

    Raises:
        InputError: One of them cannot run, as far as it can be known beforehand; none has been run.
    """
    with ExitStack() as stack:
        session = stack.enter_context(Session(fresh))
        runs = prepare(configs, output, progress, session)
        stack.pop_all()  # the session is closed after the last outcome
    return _outcomes(runs, progress, session)


def _outcomes(runs: Sequence[ConfigRun], progress: Progress, session: Session) -> Iterator[Outcome]:
    with session:
        yield from run_each(runs, progress, session)


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


def evaluate(
    qrels: QrelsLike,
    run: QrelsLike,
    measures: str | Sequence[str] = MEASURES,
    *,
    ignore_identical_ids: bool = False,
    single_precision: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Evaluation:
    """Score any run with any judgments.

    Args:
        qrels: A TREC or BEIR judgment file, perhaps `.gz`; `{query: {document: grade}}`; or a table such as a
            pandas DataFrame with the columns `query_id` (or `qid`, `q_id`), `passage_id` (or `doc_id`,
            `docid`, `docno`, `pid`) and `grade` (or `relevance`, `rel`, `label`).
        run: A TREC run file, perhaps `.gz`; `{query: {document: score}}`; or such a table with `score`.
        measures: Names as in docs/measures.md, as a list or separated by commas.
        ignore_identical_ids: Drop documents whose id is the query's own.
        single_precision: Compare scores as float32, as trec_eval did before 9.0.8 and pytrec_eval does.
        columns: Of tables with other names, the column of `query`, `passage`, `grade` or `score`:
            `{"grade": "weight"}`.

    Returns:
        Values per query, means and 95% intervals.

    Raises:
        InputError: A file or a measure cannot be read.
    """
    from pipeline.metrics.evaluation import evaluate_files
    from pipeline.metrics.names import parse_measures

    named = parse_measures(measures)
    return evaluate_files(qrels, run, named, ignore_identical_ids, single_precision, columns)
