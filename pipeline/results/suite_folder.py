"""The result folder `OUTPUT/NAME/` of a suite: a result folder for each collection, and `suite.json`.

A suite whose collections are judged by different measures, as MTEB's boards, has besides its measures their
mean: the macro mean of each collection's mean of its own main measure, under the name `main measures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from pipeline.core.errors import InputError
from pipeline.core.json_record import SUITE_FILE, Name, Record
from pipeline.core.records import Float64
from pipeline.core.table import Table
from pipeline.metrics.names import parse_measure
from pipeline.metrics.statistics import Strata, by_query, estimate
from pipeline.results.folder import METRICS, ROUNDING, Result, SavedResult, read_record, read_result
from pipeline.results.records import Metrics
from pipeline.results.tables import published_table, suite_table
from pipeline.storage import whole_files

if TYPE_CHECKING:
    import pandas as pd

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


@dataclass
class SavedSuite:
    """A finished suite, read from its folder; a result of one collection is a suite of one.

    Attributes:
        folder: Where it was read.
        record: The content of `suite.json`; None for a result of one collection.
        results: The result of each collection that has one; that of one collection has the name "".
        name: Of the benchmark.
        collections: The names of all collections, in the config's order.
        groups: The group of each collection that is in one.
        main_measures: What each collection is judged by, where the suite says so of all.
        measures: Those that all results have, in the first one's order. Where main measures differ, each
            result has a column `MAIN` with the values of its own.
        weights: float64 [collections], which sum to 1: what each one's mean counts. Each counts alike, and
            each group as one collection.
    """

    folder: Path
    record: SuiteRecord | None
    results: dict[str, SavedResult]
    name: str = field(init=False)
    collections: tuple[str, ...] = field(init=False, default=("",))
    groups: dict[str, str] = field(init=False, default_factory=dict)
    main_measures: dict[str, str] = field(init=False, default_factory=dict)
    measures: list[str] = field(init=False)
    weights: Float64 = field(init=False)

    def __post_init__(self) -> None:
        if self.record:
            self.name, self.collections = self.record.name, self.record.collections
            self.groups, self.main_measures = self.record.groups, self.record.main_measures
        else:
            self.name = self.results[""].record.name
        units = [self.groups.get(name, (name,)) for name in self.collections]
        self.weights = np.array([1 / len(set(units)) / units.count(unit) for unit in units])
        columns = {each: result.measures for each, result in self.results.items()}
        has_main = all(self.main_measures.get(each) in names for each, names in columns.items())
        if has_main and len(set(self.main_measures.values())) > 1:
            for each, result in self.results.items():
                main = result.values[:, result.measures.index(self.main_measures[each])]
                self.results[each] = replace(
                    result, measures=[*result.measures, MAIN], values=np.column_stack([result.values, main])
                )
        measures = [result.measures for result in self.results.values()] or [[]]
        self.measures = [name for name in measures[0] if all(name in others for others in measures)]

    def highest(self, measures: Sequence[str]) -> Float64:
        """float64 [measures]: the highest value that a query can have; infinite where there is none."""
        named = [[*self.main_measures.values()] if name == MAIN else [name] for name in measures]
        return np.array([max(parse_measure(each).highest for each in names) for names in named])

    def by_query(self, strata: Strata) -> tuple[Strata, Float64]:
        """Strata of independent queries, and their weights, from values in the order of the collections."""
        return by_query(strata, self.weights, [result.query_ids for result in self.results.values()])

    def same_as(self, other: SavedSuite) -> bool:
        """Whether another one of the same queries has the same settings, data and values."""
        pairs = [(result, other.results[name]) for name, result in self.results.items()]
        return all(
            _key(one) and _key(one) == _key(two) and np.array_equal(one.values, two.values)
            for one, two in pairs
        )

    @classmethod
    def of_one(cls, result: SavedResult) -> SavedSuite:
        """A result of one collection."""
        return cls(result.folder, None, {"": result})


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
    of_suite: ClassVar[bool] = True

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

    def to_dataframe(self) -> pd.DataFrame:
        """The values of each collection, under its name in a further level of the index."""
        import pandas as pd

        own = {name: result.to_dataframe() for name, result in self.results.items()}
        return pd.concat(own, names=["collection", "query_id"])

    def tables(self) -> list[Table]:
        """Collections and measures; then published scores, if the suite gives any."""
        records = {name: result.record for name, result in self.results.items()}
        main = [MAIN] if MAIN in self.metrics["metrics"] else []
        table = suite_table(self.metrics, records, {name: self._means(name) for name in records}, main)
        notes = [f"{main_measures_note(self.metrics['main_measures'])}."] if main else []
        shown = [replace(table, notes=[*table.notes, *notes, f"in {self.folder}"])]
        scores = [score for record in records.values() for score in record.expected]
        return [*shown, published_table(scores)] if scores else shown

    def _means(self, collection: str) -> dict[str, float]:
        """The means of a collection, its main measure's under the name `MAIN` too."""
        means = self.results[collection].record.metrics
        main = self.metrics.get("main_measures", {}).get(collection)
        return {**means, MAIN: means[main]} if main in means else means


def canonical_measure(text: str) -> str:
    """The name of a measure, or `MAIN`, as results have it."""
    return MAIN if text.strip().lower() in (MAIN, ALSO) else str(parse_measure(text))


def main_measures_note(main_measures: Mapping[str, str]) -> str:
    """Which collections are judged by which measure, as a sentence without its full stop."""
    by_measure: dict[str, list[str]] = {}
    for collection, measure in main_measures.items():
        by_measure.setdefault(measure, []).append(collection)
    parts = [f"{measure} of {', '.join(names)}" for measure, names in by_measure.items()]
    return f"{MAIN}: {'; '.join(parts)}"


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
    record = SuiteRecord(
        name=name,
        collections=order,
        groups=dict(groups),
        main_measures=dict(main_measures),
        failed={each: str(errors[each]) for each in order if each in errors},
        keys={each: _key(result) for each, result in saved.items()},
        queries=sum(result.record.queries for result in saved.values()),
        passages=sum(result.record.passages for result in saved.values()),
        metrics={},
        intervals={},
    )
    if not errors:
        suite = SavedSuite(folder, record, saved)
        if measures := suite.measures:
            strata = [
                each.values[:, [each.measures.index(measure) for measure in measures]]
                for each in suite.results.values()
            ]
            made = estimate(*suite.by_query(strata), low=0, high=suite.highest(measures))
            found = {"metrics": made.means.tolist(), "intervals": made.intervals}
            macro = {name: dict(zip(measures, values, strict=True)) for name, values in found.items()}
            record = record.model_copy(update=macro)
    document = record.model_dump(mode="json")
    whole_files.write_json(folder / SUITE_FILE, document)
    return SuiteResult(folder, document, dict(results), dict(errors))


def read_suite_result(folder: PathLike[str] | str) -> SavedSuite:
    """Read a result folder, of a suite or of one collection.

    Raises:
        InputError: It is not one, or its files are damaged, or of several runs.
    """
    folder = Path(folder)
    if not (folder / SUITE_FILE).is_file():
        return SavedSuite(folder, None, {"": read_result(folder)})
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
    for measure, mean in () if record.failed else record.metrics.items():
        if measure not in suite.measures:
            return f"not every collection has {measure}"
        means = [
            float(each.values[:, each.measures.index(measure)].mean()) for each in suite.results.values()
        ]
        if not abs(float(suite.weights @ means) - mean) <= ROUNDING * max(1, *map(abs, means)):
            return f"the macro mean of {measure} is not that of its collections"
    return ""


def _key(result: SavedResult) -> str:
    """The key of the scores, which covers all that shaped a result."""
    return str(result.manifest.recipes.get("evaluate", {}).get("key", ""))


def check_kind(folder: Path, suite: bool) -> None:
    """Refuse a folder with a result of a suite for one of a single collection, and the reverse."""
    if (folder / (METRICS if suite else SUITE_FILE)).exists():
        held, wanted = ("one collection", "a suite") if suite else ("a suite", "one collection")
        raise InputError(
            f"result folder {folder} holds a result of {held}, and this is one of {wanted}",
            allowed="a folder of its own for each",
            fix="name another with --output DIR, or change the config's name",
        )
