"""Runs of benchmarks and suites: all are checked, then each is run and its result folder written."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from pipeline.config import Config
from pipeline.config.files import refuse_namesakes
from pipeline.core import machine
from pipeline.core.display import Progress, numbered
from pipeline.core.errors import InputError
from pipeline.engines.engine import EngineFactory
from pipeline.metrics.definitions import parse_measure
from pipeline.results.result import Result, write_suite
from pipeline.run.benchmark import Benchmark, Session
from pipeline.run.writing import check_folder, write_result
from pipeline.storage.hashing import hash_json
from pipeline.storage.whole_files import name_on_disk

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one of several benchmarks: its result, or the exception that stopped it."""

    config: Config
    result: Result | None
    error: Exception | None


@dataclass
class ConfigRun:
    """What one config is run as: one benchmark, or one for each collection of a suite."""

    config: Config
    folder: Path
    members: Mapping[str, Config]  # of a suite: see `Config.members`
    alone: bool = False  # whether no other benchmark runs: what stops it is raised at once
    # The benchmarks that have not been run, in order. Each is taken from here first, so that its model can be
    # freed after it.
    waiting: list[Benchmark] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)  # what stopped collections of a suite

    @contextlib.contextmanager
    def leaving_out(self, name: str) -> Iterator[None]:
        """Around a check: a collection of a suite that is refused is left out, unless all are.

        Raises:
            InputError: The benchmark is refused, or all collections of a suite; it says of the first why.
        """
        try:
            yield
        except InputError as error:
            if self.alone:
                raise
            self.errors[name] = error
            self.waiting = [each for each in self.waiting if each.config.name != name]
            if len(self.errors) < len(self.members):
                return
            name, first = next(iter(self.errors.items()))
            assert isinstance(first, InputError)
            where = f"{self.config.name}, collection {name}" if self.members else name
            raise InputError(f"{where}: {first.found}", allowed=first.allowed, fix=first.fix) from first

    def run_collections(self, progress: Progress) -> Outcome:
        """Run every collection of a suite; one that fails does not stop those after it."""
        order = list(self.members)
        for benchmark in self.waiting:
            benchmark.progress = numbered(progress, order.index(benchmark.config.name) + 1, len(order))
        self._make_by_engine()
        while self.waiting:
            benchmark = self.waiting.pop(0)
            name = benchmark.config.name
            number = order.index(name) + 1
            log.info("%s: collection %d of %d, %s", self.config.name, number, len(order), name)
            try:
                self.results[name] = write_result(self.folder / name, benchmark, benchmark.run())
            except Exception as failure:
                log.warning("%s: collection %s failed", self.config.name, name)
                self.errors[name] = failure
                benchmark.session.close_engine()
        if not self.results:
            return Outcome(self.config, None, next(iter(self.errors.values())))
        return Outcome(self.config, self._write_suite(), None)

    def _make_by_engine(self) -> None:
        """Where collections use several engines, make for all what one of them does, then open the next.

        One engine is open at a time. So an encoder and a reranker, or the encoders of a fusion, would be
        loaded again for each collection. What fails here fails again when the collection's turn comes.
        """
        used = [benchmark.engines_to_open() for benchmark in self.waiting]
        if all(engine == engines[0] for engines in used for engine in engines):
            return
        done = list[EngineFactory]()
        for engine in chain.from_iterable(used):
            for benchmark in self.waiting if engine not in done else ():
                with contextlib.suppress(Exception):
                    benchmark.make_with(engine)
            done.append(engine)

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
    machine.check_compiler()
    runs = [ConfigRun(each, Path(output or each.output) / each.name, each.members) for each in configs]
    written = [(run.folder / name, bool(name)) for run in runs for name in run.members or [""]]
    alone = len(written) == 1
    if not alone:
        refuse_namesakes((f"config {folder.name}", name_on_disk(folder)) for folder, _ in written)
    for folder, in_suite in written:
        check_folder(folder, in_suite)
    to_make = set[Benchmark]()
    for run in runs:
        run.alone = alone
        for config in run.members.values() or [run.config]:
            with run.leaving_out(config.name):
                benchmark = Benchmark(config, session, progress)
                ranking = benchmark.recipes[benchmark.retriever.ranking]
                if session.fresh or not benchmark.store.find(ranking):
                    benchmark.check()
                    to_make.add(benchmark)
                run.waiting.append(benchmark)
    for run in runs:
        for benchmark in [each for each in run.waiting if each in to_make]:
            with run.leaving_out(benchmark.config.name):
                benchmark.check_collection(run.alone)
        for name, why in run.errors.items():
            log.warning("%s: collection %s is left out: %s", run.config.name, name, why)
        if run.members:
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


def run_each(runs: Sequence[ConfigRun], progress: Progress, session: Session) -> Iterator[Outcome]:
    """Run what was prepared, one after the other; the session ends after the last outcome."""
    with session:
        for number, run in enumerate(runs, start=1):
            try:
                if run.members:
                    yield run.run_collections(progress)
                    continue
                if len(runs) > 1:
                    log.info("%d of %d: %s", number, len(runs), run.config.name)
                    run.waiting[0].progress = numbered(progress, number, len(runs))
                try:
                    benchmark = run.waiting.pop(0)
                    result = write_result(run.folder, benchmark, benchmark.run())
                    outcome = Outcome(run.config, result, None)
                except Exception as failure:
                    outcome = Outcome(run.config, None, failure)
                yield outcome
            finally:
                session.close_engine()
