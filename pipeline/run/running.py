"""Runs of benchmarks and suites: all are checked, then each is run and its result folder written."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

from pipeline.config import Config
from pipeline.config.files import refuse_namesakes
from pipeline.core import machine
from pipeline.core.display import Progress, numbered
from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.core.result_files import CHECKSUMS, MANIFEST, METRICS, PER_QUERY, RANKING
from pipeline.core.result_records import without_part
from pipeline.metrics.names import parse_measure
from pipeline.results.folder import FILES, read_record
from pipeline.results.published import check_expected
from pipeline.results.records import Manifest
from pipeline.results.result import Result, check_kind, read_result, write_suite
from pipeline.run.benchmark import Benchmark, Session, StageOutcome
from pipeline.run.estimate import obstacle
from pipeline.run.plan import REPORTED, SCORES
from pipeline.storage import locks, whole_files
from pipeline.storage.checksums import added_files, write_checksums
from pipeline.storage.hashing import hash_json

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one of several benchmarks: its result, or the exception that stopped it."""

    config: Config
    result: Result | None
    error: Exception | None


@dataclass
class ConfigRun:
    """What one config is run as: one benchmark, or one for each collection of a suite.

    Attributes:
        waiting: The benchmarks that have not been run, in order. Each is taken from here first, so that its
            model can be freed after it.
        errors: What stopped collections of a suite.
    """

    config: Config
    folder: Path
    waiting: list[Benchmark]
    results: dict[str, Result] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)

    def folder_of(self, benchmark: Benchmark) -> Path:
        """The result folder of one of its benchmarks."""
        return self.folder / benchmark.config.name if self.config.suite else self.folder

    def check(self, check: Callable[[Benchmark], None]) -> None:
        """Check the benchmarks; a collection of a suite that is refused is left out, unless all are.

        Raises:
            InputError: The benchmark is refused, or the first collection of a suite of which all are.
        """
        refused: dict[str, InputError] = {}
        for benchmark in self.waiting:
            try:
                check(benchmark)
            except InputError as error:
                refused[benchmark.config.name] = error
        if refused and len(refused) == len(self.waiting):
            name, first = next(iter(refused.items()))
            where = f"{self.config.name}, collection {name}" if self.config.suite else name
            raise InputError(f"{where}: {first.found}", allowed=first.allowed, fix=first.fix)
        for name, why in refused.items():
            log.warning("%s: collection %s is left out: %s", self.config.name, name, why)
        self.errors |= refused
        self.waiting = [each for each in self.waiting if each.config.name not in refused]

    def each(self, progress: Progress, number: int, total: int) -> Outcome:
        """Run the benchmarks, write the results, and report the outcome of the whole."""
        if self.config.suite:
            self._run_collections(progress)
            if not self.results:
                return Outcome(self.config, None, next(iter(self.errors.values())))
            return Outcome(self.config, self._write_suite(), None)
        benchmark = self.waiting.pop(0)
        log.info("%d of %d: %s", number, total, self.config.name)
        try:
            benchmark.progress = numbered(progress, number, total)
            return Outcome(self.config, finish(benchmark, self.folder), None)
        except Exception as failure:
            return Outcome(self.config, None, failure)

    def _run_collections(self, progress: Progress) -> None:
        """Run every collection; one that fails does not stop those after it."""
        order = list(self.config.members)
        for benchmark in self.waiting:
            benchmark.progress = numbered(progress, order.index(benchmark.config.name) + 1, len(order))
        self._make_by_engine()
        while self.waiting:
            benchmark = self.waiting.pop(0)
            name = benchmark.config.name
            number = order.index(name) + 1
            log.info("%s: collection %d of %d, %s", self.config.name, number, len(order), name)
            try:
                self.results[name] = finish(benchmark, self.folder_of(benchmark))
            except Exception as failure:
                log.warning("%s: collection %s failed", self.config.name, name)
                self.errors[name] = failure
                benchmark.session.close_engine()

    def _make_by_engine(self) -> None:
        """Where collections use several engines, make for all what one of them does, then open the next.

        One engine is open at a time. So an encoder and a reranker, or the encoders of a fusion, would be
        loaded again for each collection. What fails here fails again when the collection's turn comes.
        """
        used = {benchmark.config.name: benchmark.engines_to_open for benchmark in self.waiting}
        if max(map(len, used.values()), default=0) < 2:
            return
        for engine in dict.fromkeys(chain.from_iterable(used.values())):
            for benchmark in self.waiting:
                with contextlib.suppress(Exception):
                    benchmark.make_with(engine)

    def _write_suite(self) -> Result:
        suite = self.config.suite
        assert suite is not None
        groups = {name: each.group for name, each in suite.collections.items() if each.group}
        order = tuple(suite.collections)
        main = {name: suite.measure_of(name) for name in order}
        known = {name: str(parse_measure(measure)) for name, measure in main.items() if measure}
        known = known if len(known) == len(order) else {}
        return write_suite(self.folder, self.config.name, groups, self.results, self.errors, order, known)


def prepare(
    configs: Sequence[Config], output: str | Path | None, progress: Progress, session: Session
) -> list[ConfigRun]:
    """The runs of configs, all of them checked, with their collections read.

    Raises:
        InputError: One of them cannot run, as far as it can be known beforehand.
    """
    folders = [result_folder(config, output) for config in configs]
    refuse_namesakes((f"config {folder.name}", str(folder)) for folder in folders)
    members = [list(config.members.values()) or [config] for config in configs]
    runs = [
        ConfigRun(config, folder, [session.benchmark(one, progress) for one in each])
        for config, folder, each in zip(configs, folders, members, strict=True)
    ]
    for run in runs:
        check_kind(run.folder, run.config.suite is not None)
        for benchmark in run.waiting:
            check_folder(run.folder_of(benchmark))
    if sum(map(len, members)) > 1:  # one alone checks itself
        for run in runs:
            run.check(Benchmark.check)
        for run in runs:
            run.check(_read_collection)
            _refuse_twice(run)
    return runs


def _refuse_twice(run: ConfigRun) -> None:
    """Refuse a suite that has a collection twice: its macro mean would count it as two.

    Raises:
        InputError: Two collections have the same passages, queries and judgments.
    """
    names: dict[str, str] = {}
    for benchmark in run.waiting:
        name = benchmark.config.name
        twin = names.setdefault(hash_json(benchmark.retriever.identity.qrels), name)
        if twin != name:
            raise InputError(
                f"{run.config.name}: the collections '{twin}' and '{name}' are the same data",
                allowed="each collection once",
                fix="leave one of them out",
            )


def result_folder(config: Config, output: str | Path | None) -> Path:
    """The result folder of a config; `output` takes the place of its own setting."""
    return Path(output or config.output) / config.name


def _read_collection(benchmark: Benchmark) -> None:
    """Read the collection of a benchmark that has to search it, and refuse settings that do not fit."""
    if benchmark.searched:
        return
    try:
        _ = benchmark.collection
    except Exception:  # it fails again when its turn comes, and does not stop the others
        return
    _check_collection(benchmark)


def _check_collection(benchmark: Benchmark) -> None:
    """Refuse settings that do not fit the collection, and stages that this machine does not hold.

    Raises:
        InputError: It says what would fit.
    """
    collection = benchmark.collection
    benchmark.retriever.check_collection(collection)
    n_passages, n_queries = len(collection.passages), len(collection.queries)
    if lacking := obstacle(benchmark, n_passages, n_queries, benchmark.missing()):
        raise lacking


def run_each(runs: Sequence[ConfigRun], progress: Progress, session: Session) -> Iterator[Outcome]:
    """Run what was prepared, one after the other."""
    for number, run in enumerate(runs, start=1):
        try:
            yield run.each(progress, number, len(runs))
        finally:
            session.close_engine()


def finish(benchmark: Benchmark, folder: Path) -> Result:
    """Run a benchmark and write its result folder."""
    started = time.perf_counter()
    retriever = benchmark.retriever
    benchmark.check()
    for model in retriever.models():
        log.info("%s", model.describe())
        if model.guessed:
            log.warning("model %s: %s", model.name, model.guessed)
    benchmark.confirm()
    if not benchmark.store.root.is_dir():
        log.info("new cache: %s", benchmark.store.root.absolute())
    if not benchmark.searched:
        _warn_of_slow_precisions(benchmark)
        for factory in benchmark.engines_to_open[:1]:  # a missing cluster is found before work
            benchmark.session.engine(factory, benchmark.store)
        _check_collection(benchmark)
    _log_work(benchmark)
    outcomes = benchmark.run()
    benchmark.seconds += time.perf_counter() - started
    return _write_result(folder, benchmark, outcomes)


def _warn_of_slow_precisions(benchmark: Benchmark) -> None:
    """Say which models compute in a precision that this processor emulates, slower than fp32."""
    for section in benchmark.resolved_config.models:
        source = benchmark.session.identities.resolve(section)
        precision = source.model.precision if source.model and source.device == "cpu" else ""
        if lacking := machine.emulated_precision(precision):
            faster = ", ".join(machine.fast_precisions()) or "none"
            log.warning(
                "model %s: %s is slower than fp32 on this processor, which lacks %s (faster than fp32: %s)",
                *(section.label, precision, lacking, faster),
            )


def _log_work(benchmark: Benchmark) -> None:
    """Log what a benchmark is about to compute."""
    if not log.isEnabledFor(logging.INFO):
        return
    missing = [name for name in benchmark.recipes if not benchmark.has(name)]
    if not missing or benchmark.searched:
        scored = "everything is in the cache" if not missing else f"in the cache but for {', '.join(missing)}"
        log.info("%s: %s", benchmark.config.name, scored)
        return
    log.info("%s: computes %s.", benchmark.config.name, ", ".join(missing))


def _write_result(folder: Path, benchmark: Benchmark, outcomes: Sequence[StageOutcome]) -> Result:
    """Write the result folder; an earlier one whose scores were shaped otherwise is kept beside it."""
    artifacts = {outcome.stage: outcome.artifact for outcome in outcomes if outcome.artifact}
    ranking, evaluate = artifacts[benchmark.retriever.ranking], artifacts[SCORES]
    scores = benchmark.opened(SCORES)
    settings = benchmark.resolved_config.model_dump(mode="json")
    rows = [outcome.row.model_dump(mode="json", exclude_unset=True) for outcome in outcomes]
    metrics = {
        "name": benchmark.config.name,
        **{key: scores[key] for key in REPORTED},
        "models": benchmark.models_used,
        "stages": [row for row in rows if row["stage"] == without_part(row["stage"])],
    }
    metrics |= {key: value for key, value in scores.items() if key not in REPORTED}
    metrics |= benchmark.retriever.report(artifacts, scores, rows)
    if benchmark.config.expected:
        checks = check_expected(benchmark.config, metrics["metrics"])
        metrics["expected"] = [check.model_dump(mode="json") for check in checks]
    recipes = benchmark.recipes.items()
    manifest = {
        "config": settings,
        "cache": str(benchmark.store.root.absolute()),
        "recipes": {name: {"key": recipe.key, **recipe.plain} for name, recipe in recipes},
        "models": benchmark.model_settings,
        "versions": machine.versions(),
        "hardware": machine.hardware(),
        "wall_seconds": round(benchmark.seconds, 3),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    check_folder(folder)
    return _write_files(folder, metrics, manifest, [evaluate.path(PER_QUERY), ranking.path(RANKING)])


def _write_files(folder: Path, metrics: Facts, manifest: Facts, copied: Sequence[Path]) -> Result:
    """Write the files, their checksums last, and read them, while no other run writes to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = locks.hold(folder, wait=False)
    if lock is None:
        log.warning("waiting: another run is writing %s", folder)
        lock = locks.hold(folder)
    _keep_other(folder, manifest["recipes"])
    added = added_files(folder, FILES)
    for name in (CHECKSUMS, MANIFEST):
        (folder / name).unlink(missing_ok=True)
    whole_files.write_json(folder / METRICS, metrics)
    for source in copied:
        with whole_files.replacing(folder / source.name) as temporary:
            shutil.copyfile(source, temporary)
    whole_files.write_json(folder / MANIFEST, manifest)
    write_checksums(folder, [*FILES, *added])
    result = read_result(folder)
    if lock:
        lock.release()
    return result


def _keep_other(folder: Path, recipes: Facts) -> None:
    """Keep a finished result that other settings or data led to: as `NAME~1`, or the next free number.

    Its files get a second name there before the new ones take their places, so none is ever absent. What
    studies added to it goes with it.
    """
    try:
        recipes_before = read_record(folder, MANIFEST, Manifest).recipes
    except (InputError, OSError):
        return
    if recipes_before.get(SCORES, {}).get("key") == recipes[SCORES]["key"]:
        return
    other = next(path for n in count(1) if not (path := folder.with_name(f"{folder.name}~{n}")).exists())
    other.mkdir()
    added = added_files(folder, FILES)
    for name in (*FILES, *added, CHECKSUMS):  # these last: with them, the folder is complete
        if (folder / name).is_file():
            whole_files.link(folder / name, other / name)
    for name in added:
        (folder / name).unlink()
    log.warning("the result in %s had other settings or data; it is kept as %s", folder, other)


def check_folder(folder: Path) -> None:
    """Refuse a result folder that cannot be written, before anything is computed for it.

    Raises:
        InputError: It is a link, which may lead anywhere, or a file is in the way, or it is protected, or its
            name is too long.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if folder.is_symlink():
        what = f"is a link to {os.readlink(folder)}"
    elif not existing.is_dir():
        what = "is not a folder" if existing == folder else f"cannot be made: {existing} is not a folder"
    elif any(len(os.fsencode(part)) > os.pathconf(existing, "PC_NAME_MAX") for part in folder.parts):
        what = "cannot be made: its name is too long"
    elif not os.access(existing, os.W_OK):
        what = f"cannot be written: {existing} is protected, or its disk read-only"
    else:
        return
    raise InputError(
        f"result folder {folder}: {what}",
        allowed="a folder that can be written, or a name that is free",
        fix="name another with --output DIR, or change the config's name",
    )
