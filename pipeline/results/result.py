"""A finished benchmark, of one collection or of a suite: one class, and the function that opens its folder.

result = read_result("results/quickstart")
result.metrics["ndcg@10"]

The folder of a suite holds a result folder for each collection, and `suite.json`. Its measures are macro
means. A suite whose collections are judged by different measures, as MTEB's boards, has besides them the
macro mean of each collection's own main measure, under the name `main measures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from pipeline.core.errors import InputError
from pipeline.core.records import Facts, Float64
from pipeline.core.result_records import Name, Record
from pipeline.core.table import Table, Tabular
from pipeline.metrics.definitions import parse_measure
from pipeline.metrics.statistics import Strata, estimate, over_collections, pool_draws
from pipeline.results.folder import ROUNDING, CollectionResult, read_collection_result, read_record
from pipeline.results.records import Metrics
from pipeline.results.tables import mean_sentence, published_table, result_table, suite_table
from pipeline.storage import whole_files
from pipeline.storage.whole_files import CHECKSUMS, SUITE, check_files, write_checksums

if TYPE_CHECKING:
    import pandas as pd

MAIN = "main measures"


class SuiteRecord(Record):
    """The content of `suite.json`."""

    name: Name
    collections: Annotated[tuple[str, ...], Field(min_length=1)]  # all of them, in the config's order
    groups: dict[str, str] = Field({})  # the group of each collection that is in one
    # What each collection is judged by, where the suite says so of all.
    main_measures: dict[str, str] = Field({})
    failed: dict[str, str] = Field({})  # what stopped each collection that has no result
    keys: dict[str, str]  # for each collection that has a result the key of its scores
    queries: int  # queries, passages: how many there are in all collections together
    passages: int
    # Macro means of the measures that all collections have, and of their main measures where these differ;
    # empty where one failed.
    metrics: dict[str, float]
    # Their 95% intervals, of these collections; None where none is shown.
    intervals: dict[str, tuple[float, float] | None] = Field({})
    fragile: dict[str, bool] = Field({})
    # The same of all such collections; empty of fewer than eight.
    intervals_over_collections: dict[str, tuple[float, float]] = Field({})


@dataclass(repr=False, eq=False)
class Result(Tabular):
    """A finished benchmark, of one collection or of a suite."""

    folder: Path  # where its files are
    collections: list[CollectionResult]  # the result of each collection that has one, in the config's order
    suite: SuiteRecord | None = None  # the content of `suite.json`; None for a benchmark of one collection
    edited: str = ""  # what was changed of its files after the run; "" if nothing
    # What stopped each of the other collections, by name, in the run that made this object.
    errors: dict[str, Exception] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """The benchmark's name; a comparison tells those of one name apart."""
        return self.suite.name if self.suite else self.collections[0].name

    @property
    def groups(self) -> dict[str, str]:
        """The group of each collection of a suite that is in one."""
        return self.suite.groups if self.suite else {}

    @property
    def main_measures(self) -> dict[str, str]:
        """What each collection is judged by, where the suite says so of all."""
        return self.suite.main_measures if self.suite else {}

    @cached_property
    def measures(self) -> list[str]:
        """Those of all collections, in the first one's order; `MAIN` too, where main measures differ."""
        columns = {each.name: each.measures for each in self.collections}
        first, main = next(iter(columns.values()), []), self.main_measures
        differ = len(set(main.values())) > 1 and all(main.get(each) in columns[each] for each in columns)
        return [name for name in first if all(name in each for each in columns.values())] + [MAIN] * differ

    def __fspath__(self) -> str:
        """The folder, so that a result is accepted wherever its folder is."""
        return str(self.folder)

    @property
    def document(self) -> Facts:
        """The content of `metrics.json`, or of `suite.json`, as plain JSON."""
        return self.suite.model_dump(mode="json") if self.suite else self.collections[0].document

    @cached_property
    def record(self) -> Metrics:
        """The content of `metrics.json`, typed; of a suite, macro means and the stages of all collections."""
        return _record_of_suite(self.suite, self.collections) if self.suite else self.collections[0].record

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of each measure; of a suite its macro mean."""
        return self.record.metrics

    @property
    def reused(self) -> list[str]:
        """The stages whose artifacts were in the cache; of a suite as `COLLECTION/STAGE`."""
        return [row.stage for row in self.record.all_stages if row.reused]

    def values(self, measures: Sequence[str]) -> list[Float64]:
        """For each collection float64 [queries, measures], of measures that every one has."""
        named = [
            [self.main_measures[each.name] if name == MAIN else name for name in measures]
            for each in self.collections
        ]
        return [
            each.values[:, [each.measures.index(name) for name in names]]
            for each, names in zip(self.collections, named, strict=True)
        ]

    def highest(self, measures: Sequence[str]) -> Float64:
        """float64 [measures]: the highest value that a query can have; infinite where there is none."""
        named = [[*self.main_measures.values()] if name == MAIN else [name] for name in measures]
        return np.array([max(parse_measure(each).definition.highest for each in names) for names in named])

    @property
    def weights(self) -> Float64:
        """float64 [collections], which sum to 1: each counts alike, and each group as one collection."""
        names = [each.name for each in self.collections]
        units = [self.groups.get(name, (name,)) for name in names]
        return np.array([1 / len(set(units)) / units.count(unit) for unit in units])

    def unit_means(self, strata: Strata) -> Float64:
        """float64 [units, columns]: means of what counts alike in a macro mean, collections or groups."""
        units = [self.groups.get(each.name, (each.name,)) for each in self.collections]
        means = np.stack([values.mean(axis=0) for values in strata])
        members = [[unit == one for one in units] for unit in dict.fromkeys(units)]
        return np.stack([means[inside].mean(axis=0) for inside in members])

    def pool_draws(self, strata: Strata, of_means: bool = False) -> tuple[Strata, Float64]:
        """Strata of independent draws, and their weights, from values in the order of the collections."""
        return pool_draws(strata, self.weights, [each.draws for each in self.collections], of_means)

    def only_collection(self) -> CollectionResult:
        """The result of the only collection.

        Raises:
            InputError: The result is of a suite.
        """
        if self.suite:
            raise InputError(
                f"{self.name} is of a suite",
                allowed="results of one collection",
                fix="name the folder of a collection inside the suite",
            )
        return self.collections[0]

    def same_as(self, other: Result) -> bool:
        """Whether another result of the same queries has the same settings, data and values."""
        return all(
            ours.key and ours.key == theirs.key and np.array_equal(ours.values, theirs.values)
            for ours, theirs in zip(self.collections, other.collections, strict=True)
        )

    @property
    def verdict(self) -> str:
        """The first measure's mean with its interval, as a sentence without its full stop; "" without one."""
        record = self.record
        for measure, mean in record.metrics.items():
            low, high = record.intervals.get(measure) or (None, None)
            what = f"The macro mean of {measure}" if self.suite else measure
            fragile = record.fragile.get(measure, False)
            return mean_sentence(f"{what} of {record.name}", mean, low, high, fragile, record.queries)
        return ""

    def to_dataframe(self) -> pd.DataFrame:
        """The values as a pandas DataFrame: a row per scored query, a column per measure.

        Of a suite, the first level of the index is the collection.
        """
        import pandas as pd

        frames = [
            pd.DataFrame(each.values, index=pd.Index(each.query_ids, name="query_id"), columns=each.measures)
            for each in self.collections
        ]
        names = [each.name for each in self.collections]
        return pd.concat(frames, keys=names, names=["collection", "query_id"]) if self.suite else frames[0]

    def tables(self) -> list[Table]:
        """The measures; of a suite by collection, then published scores, if the suite gives any."""
        where = f"in {self.folder}"
        if self.suite is None:
            table = result_table(self.record)
            notes = [f"reused: {', '.join(self.reused) or 'nothing'}", where]
            return [replace(table, notes=[*table.notes, *notes])]
        records = {each.name: each.record for each in self.collections}
        main = self.main_measures if MAIN in self.suite.metrics else {}
        means = {name: dict(record.metrics) for name, record in records.items()}
        for name in main:
            means[name][MAIN] = means[name][main[name]]
        table = suite_table(self.document, records, means)
        notes = [f"{main_measures_note(main)}."] if main else []
        shown = [replace(table, notes=[*table.notes, *notes, where])]
        scores = [score for record in records.values() for score in record.expected]
        return [*shown, published_table(scores)] if scores else shown


def _record_of_suite(suite: SuiteRecord, collections: Sequence[CollectionResult]) -> Metrics:
    stages = [
        row.model_copy(update={"stage": f"{each.name}/{row.stage}"})
        for each in collections
        for row in each.record.all_stages
    ]
    return Metrics(
        name=suite.name,
        queries=suite.queries,
        passages=suite.passages,
        metrics=suite.metrics,
        intervals=suite.intervals,
        fragile=suite.fragile,
        stages=tuple(stages),
    )


def canonical_measure(text: str) -> str:
    """The name of a measure, or `MAIN`, which a user may write as `main`, as results have it."""
    return MAIN if text.strip().lower() in (MAIN, "main") else str(parse_measure(text))


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
) -> Result:
    """Write `suite.json` into its folder, which holds those of the collections.

    `order` are all collections, `errors` what stopped each that has no result; `main_measures` is empty where
    the suite does not say so of all.
    """
    collections = [results[each].collections[0] for each in order if each in results]
    record = SuiteRecord(
        name=name,
        collections=order,
        groups=dict(groups),
        main_measures=dict(main_measures),
        failed={each: str(errors[each]) for each in order if each in errors},
        keys={each.name: each.key for each in collections},
        queries=sum(each.record.queries for each in collections),
        passages=sum(each.record.passages for each in collections),
        metrics={},
        intervals={},
    )
    result = Result(folder, collections, record, errors=dict(errors))
    if not errors and (measures := result.measures):
        values, highest = result.values(measures), result.highest(measures)
        macro = estimate(*result.pool_draws(values, of_means=True), low=0, high=highest)
        over, _ = over_collections(result.unit_means(values), 0, highest)
        result.suite = record.model_copy(
            update={
                "metrics": dict(zip(measures, macro.means.tolist(), strict=True)),
                "intervals": dict(zip(measures, macro.intervals, strict=True)),
                "fragile": dict(zip(measures, macro.fragile.tolist(), strict=True)),
                "intervals_over_collections": {
                    name: ends for name, ends in zip(measures, over, strict=True) if ends[0] is not None
                },
            }
        )
    (folder / CHECKSUMS).unlink(missing_ok=True)
    whole_files.write_json(folder / SUITE, result.document)
    write_checksums(folder, [SUITE])
    return result


def read_result(folder: PathLike[str] | str) -> Result:
    """Open the result folder of a finished benchmark, of one collection or of a suite.

    Args:
        folder: The folder that `run_benchmark` or `benchmarco run` wrote.

    Returns:
        What `run_benchmark` returned, but for `errors`.

    Raises:
        InputError: It is not one, or its files are damaged or of several runs.
    """
    folder = Path(folder)
    if not (folder / SUITE).is_file():
        collection = read_collection_result(folder)
        if collection.edited:  # every table names the result
            name = f"{collection.name} ({collection.edited})"
            collection = replace(collection, record=collection.record.model_copy(update={"name": name}))
        return Result(folder, [collection], edited=collection.edited)
    edited_suite = check_files(folder, [SUITE])
    record = read_record(folder, SUITE, SuiteRecord)
    names = [name for name in record.collections if name not in record.failed]
    collections = [read_collection_result(folder / name) for name in names]
    edited = [edited_suite, *(f"{each.name}: {each.edited}" for each in collections if each.edited)]
    result = Result(folder, collections, record, edited="; ".join(filter(None, edited)))
    if result.edited:
        result.name += f" ({result.edited})"
    if problem := _disagreement(result, names, record):
        raise InputError(
            f"suite {folder}: {problem}",
            allowed="results of one run",
            fix="run its config again; what is in the cache is not computed again",
        )
    return result


def refuse_edited(result: Result) -> None:
    """Refuse a result whose files were changed after the run, where a decision is made by it."""
    if result.edited:
        raise InputError(
            f"result folder {result.folder}: {result.edited}, after the run",
            allowed="the files as benchmarco run wrote them",
            fix="run its config again; what is in the cache is not computed again",
        )


def _disagreement(result: Result, names: Sequence[str], record: SuiteRecord) -> str:
    """How suite.json and the folders contradict each other; "" where they do not."""
    for name, each in zip(names, result.collections, strict=True):
        if each.key != record.keys.get(name) or each.name != name:
            return f"collection {name} has been run with other settings or data since"
    for measure, mean in () if record.failed else record.metrics.items():
        if measure not in result.measures:
            return f"not every collection has {measure}"
        means = [float(each.mean()) for each in result.values([measure])]
        if not abs(float(result.weights @ means) - mean) <= ROUNDING * max(1, *map(abs, means)):
            return f"the macro mean of {measure} is not that of its collections"
    return ""
