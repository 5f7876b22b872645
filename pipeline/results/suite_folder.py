"""The result folder `OUTPUT/NAME/` of a suite: a result folder for each collection, and `suite.json`.

A suite whose collections are judged by different measures, as MTEB's boards, has besides its measures their
mean: the macro mean of each collection's mean of its own main measure, under the name `main measures`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from pipeline.config.suites import SUITE_FILE
from pipeline.core.errors import InputError
from pipeline.core.json_record import Name, Record
from pipeline.core.table import Table
from pipeline.metrics.names import parse_measure
from pipeline.results.folder import METRICS, ROUNDING, Result, SavedResult, read_record, read_result
from pipeline.results.records import Metrics
from pipeline.results.tables import suite_table
from pipeline.storage import whole_files

if TYPE_CHECKING:
    from pipeline.core.records import Float64

SCORES = "evaluate"  # the stage whose key covers all that shaped a result
MAIN = "main measures"
ALSO = "main"
"""What a user may write for it."""


class SuiteRecord(Record):
    """The content of `suite.json`.

    Attributes:
        collections: All of them, in the config's order.
        groups: The group of each collection that is in one.
        main_measures: What each collection is judged by, where the suite says so of all.
        failed: What stopped each collection that has no result.
        keys: For each collection that has a result the key of its scores.
        queries, passages: How many there are in all collections together.
        metrics: Macro means of the measures that all collections have, and of their main measures where
            these differ; empty where one failed.
        intervals: Their 95% intervals; None where none is shown.
    """

    name: Name
    collections: Annotated[tuple[str, ...], Field(min_length=1)]
    groups: dict[str, str] = Field({})
    main_measures: dict[str, str] = Field({})
    failed: dict[str, str] = Field({})
    keys: dict[str, str]
    queries: int
    passages: int
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float] | None] = Field({})


@dataclass(frozen=True)
class SavedSuite:
    """A finished suite, read from its folder; a result of one collection is a suite of one.

    Attributes:
        folder: Where it was read.
        record: The content of `suite.json`; None for a result of one collection.
        results: The result of each collection that has one; that of one collection has the name "".
    """

    folder: Path
    record: SuiteRecord | None
    results: dict[str, SavedResult]

    @classmethod
    def of_one(cls, result: SavedResult) -> SavedSuite:
        """A result of one collection."""
        return cls(result.folder, None, {"": result})

    @property
    def name(self) -> str:
        """The name of the benchmark."""
        return (self.record or self.results[""].record).name

    @property
    def collections(self) -> tuple[str, ...]:
        """The names of all collections, in the config's order."""
        return self.record.collections if self.record else ("",)

    @property
    def groups(self) -> dict[str, str]:
        """The group of each collection that is in one."""
        return self.record.groups if self.record else {}

    @property
    def main_measures(self) -> dict[str, str]:
        """What each collection is judged by, where the suite says so of all."""
        return self.record.main_measures if self.record else {}

    @property
    def measures(self) -> list[str]:
        """Those that all results have, in the first one's order, and `MAIN` where main measures differ."""
        return common_measures(self.results, self.main_measures)

    @property
    def weights(self) -> Float64:
        """float64 [collections]: what each one's mean counts."""
        return suite_weights(self.collections, self.groups)

    def values_of(self, collection: str, measure: str) -> Float64:
        """float64 [queries]: a measure of a collection's queries, in its own order."""
        result = self.results[collection]
        return result.values[:, result.measures.index(measure_in(collection, measure, self.main_measures))]


@dataclass(frozen=True, repr=False)
class SuiteResult(Result):
    """A finished suite.

    Attributes:
        folder: Where its files are.
        metrics: The content of `suite.json`, as plain JSON.
        results: The result of each collection that was run.
        errors: What stopped each of the others.
    """

    results: Mapping[str, Result]
    errors: Mapping[str, Exception]

    @cached_property
    def record(self) -> Metrics:
        """The macro means, the queries and passages of all collections together, and all their stages."""
        kept = {name: self.metrics[name] for name in ("name", "queries", "passages", "metrics", "intervals")}
        stages = [
            row.model_copy(update={"stage": f"{name}/{row.stage}"})
            for name, result in self.results.items()
            for row in result.record.all_stages
        ]
        return Metrics.model_validate({**kept, "stages": stages})

    @property
    def reused(self) -> list[str]:
        """The stages whose artifacts were in the cache, as `COLLECTION/STAGE`."""
        return [row.stage for row in self.record.stages if row.reused]

    def tables(self) -> list[Table]:
        """Collections and measures."""
        records = {name: result.record for name, result in self.results.items()}
        main = [MAIN] if MAIN in self.metrics["metrics"] else []
        table = suite_table(self.metrics, records, {name: self._means(name) for name in records}, main)
        notes = [f"{main_measures_note(self.metrics['main_measures'])}."] if main else []
        return [replace(table, notes=[*table.notes, *notes, f"in {self.folder}"])]

    def _means(self, collection: str) -> dict[str, float]:
        """The means of a collection, its main measure's under the name `MAIN` too."""
        means = self.results[collection].record.metrics
        main = self.metrics.get("main_measures", {}).get(collection)
        return {**means, MAIN: means[main]} if main in means else means


def canonical_measure(text: str) -> str:
    """The name of a measure, or `MAIN`, as results have it."""
    return MAIN if text.strip().lower() in (MAIN, ALSO) else str(parse_measure(text))


def measure_in(collection: str, measure: str, main_measures: Mapping[str, str]) -> str:
    """The measure that a collection is judged by, where `MAIN` stands for that of each."""
    return main_measures[collection] if measure == MAIN else measure


def main_measures_note(main_measures: Mapping[str, str]) -> str:
    """Which collections are judged by which measure, as a sentence without its full stop."""
    by_measure: dict[str, list[str]] = {}
    for collection, measure in main_measures.items():
        by_measure.setdefault(measure, []).append(collection)
    parts = [f"{measure} of {', '.join(names)}" for measure, names in by_measure.items()]
    return f"{MAIN}: {'; '.join(parts)}"


def common_measures(results: Mapping[str, SavedResult], main_measures: Mapping[str, str]) -> list[str]:
    """The measures that all results have, in the first one's order, and `MAIN` where main measures differ."""
    first, *others = results.values()
    common = [name for name in first.measures if all(name in other.measures for other in others)]
    differ = len(set(main_measures.values())) > 1
    has_main = all(main_measures.get(name) in result.measures for name, result in results.items())
    return [*common, MAIN] if differ and has_main else common


def suite_weights(collections: tuple[str, ...], groups: Mapping[str, str]) -> Float64:
    """float64 [collections]: what each one's mean counts in the macro mean."""
    from pipeline.metrics.statistics import weights_of

    return weights_of([groups.get(name) for name in collections])


def write_suite(
    folder: Path,
    name: str,
    groups: Mapping[str, str],
    results: Mapping[str, Result],
    errors: Mapping[str, Exception],
    order: tuple[str, ...],
    main_measures: Mapping[str, str],
) -> SuiteResult:
    """Write `suite.json` from the collections' result folders.

    Args:
        folder: Of the suite; it holds those of the collections.
        name: Of the suite.
        groups: The group of each collection that is in one.
        results: Of the collections that were run.
        errors: What stopped each of the others.
        order: All collections.
        main_measures: What each is judged by; empty where the suite does not say so of all.
    """
    saved = {each: read_result(folder / each) for each in order if each in results}
    document: dict[str, Any] = {
        "name": name,
        "collections": list(order),
        "groups": dict(groups),
        "main_measures": dict(main_measures),
        "failed": {each: str(errors[each]) for each in order if each in errors},
        "keys": {each: _key(result) for each, result in saved.items()},
        "queries": sum(result.record.queries for result in saved.values()),
        "passages": sum(result.record.passages for result in saved.values()),
        "metrics": {},
        "intervals": {},
    }
    if not errors:
        document |= _macro(saved, suite_weights(order, groups), main_measures)
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    whole_files.write_whole(folder / SUITE_FILE, text.encode())
    return SuiteResult(folder, json.loads(text), dict(results), dict(errors))


def _macro(
    results: Mapping[str, SavedResult], weights: Float64, main_measures: Mapping[str, str]
) -> dict[str, Any]:
    """Macro means and intervals of the measures that all have."""
    from pipeline.metrics.statistics import estimate, shown_intervals

    measures = common_measures(results, main_measures)
    if not measures:
        return {}
    strata = []
    for collection, result in results.items():
        columns = [measure_in(collection, measure, main_measures) for measure in measures]
        strata.append(result.values[:, [result.measures.index(name) for name in columns]])
    means = estimate(strata, weights).means.tolist()
    shown = shown_intervals(strata, weights)
    return {
        "metrics": dict(zip(measures, means, strict=True)),
        "intervals": dict(zip(measures, shown, strict=True)),
    }


def is_suite(folder: Path | str) -> bool:
    """Whether a folder is that of a suite."""
    return (Path(folder) / SUITE_FILE).is_file()


def read_suite_result(folder: Path | str) -> SavedSuite:
    """Read a result folder, of a suite or of one collection.

    Raises:
        InputError: It is not one, or its files are damaged, or of several runs.
    """
    folder = Path(folder)
    if not is_suite(folder):
        return SavedSuite.of_one(read_result(folder))
    record = read_record(folder, SUITE_FILE, SuiteRecord)
    results = {name: read_result(folder / name) for name in record.collections if name not in record.failed}
    suite = SavedSuite(folder, record, results)
    if problem := _disagreement(suite, record):
        raise InputError(
            f"suite {folder}: {problem}",
            allowed="results of one run",
            fix="run its config again; what is in the cache is not computed again",
        )
    return suite


def _disagreement(suite: SavedSuite, record: SuiteRecord) -> str:
    """How suite.json and the folders contradict each other; "" where they do not."""
    for name, result in suite.results.items():
        if _key(result) != record.keys.get(name):
            return f"collection {name} has been run with other settings or data since"
    if record.failed:
        return ""
    for measure, mean in record.metrics.items():
        if measure not in suite.measures:
            return f"not every collection has {measure}"
        means = [
            result.record.metrics[measure_in(name, measure, record.main_measures)]
            for name, result in suite.results.items()
        ]
        if not abs(float(suite.weights @ means) - mean) <= ROUNDING * max(1, *map(abs, means)):
            return f"the macro mean of {measure} is not that of its collections"
    return ""


def _key(result: SavedResult) -> str:
    return str(result.manifest.recipes.get(SCORES, {}).get("key", ""))


def check_kind(folder: Path, suite: bool) -> None:
    """Refuse a folder with a result of a suite for one of a single collection, and the reverse."""
    if (folder / (METRICS if suite else SUITE_FILE)).exists():
        held, wanted = ("one collection", "a suite") if suite else ("a suite", "one collection")
        raise InputError(
            f"result folder {folder} holds a result of {held}, and this is one of {wanted}",
            allowed="a folder of its own for each",
            fix="name another with --output DIR, or change the config's name",
        )
