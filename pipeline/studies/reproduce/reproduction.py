"""Reproduction: a result's manifest is run again, with nothing from its cache, and what differs is listed."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from typing_extensions import override

from pipeline.api import run_benchmarks
from pipeline.comparison.inputs import comparable
from pipeline.config.files import apply_override, make_config
from pipeline.core.display import Progress, as_text, counted, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.core.table import Column, FilledColumn, Table, Tabular, right, table_of
from pipeline.results.folder import CollectionResult, ranking_file
from pipeline.results.records import compared_settings, flatten
from pipeline.results.result import read_result
from pipeline.storage.whole_files import MANIFEST, temporary_folder

KEY = re.compile("[0-9a-f]{64}")
SHOWN = 10  # queries that a table lists


@dataclass(frozen=True)
class Difference:
    """One thing in which two manifests differ."""

    # `setting`, `input` (content of data or model files, schema of a stage), `version` or `hardware`.
    kind: str
    name: str  # a setting by its dotted name, `STAGE: ingredient`, a package, a property of the machine
    original: str  # original, again: the values; "" where a manifest does not have it
    again: str


@dataclass(frozen=True, repr=False)
class Reproduction(Tabular):
    """A result and the result of running it again."""

    name: str  # the result's name
    queries: int  # number of queries that either has
    changed: list[str]  # the ids of the queries whose ranking or values differ, or that one of them lacks
    # By measure the mean of the original and the mean of the new result.
    means: dict[str, tuple[float, float]]
    data: list[str]  # how the contents of their data differ, a clause each
    differences: list[Difference]  # what the manifests show to differ

    @property
    def unchanged(self) -> bool:
        """Whether all rankings and all values are the same."""
        return not self.changed

    def json(self) -> Facts:
        """The document that `reproduce --json` prints."""
        return {**asdict(self), "unchanged": self.unchanged}

    @override
    def tables(self) -> list[Table]:
        queries = counted(self.queries, "query", "queries")
        notes = [f"The rankings and values of all {queries} are the same."]
        if self.changed:
            listed = ", ".join(self.changed[:SHOWN]) + (", ..." if len(self.changed) > SHOWN else "")
            notes = [f"{len(self.changed):,} of {queries} differ: {listed}."]
        notes += [f"The two {clause}." for clause in self.data]
        if not self.differences:
            notes.append("No input, setting, version or hardware differs.")
        columns: list[FilledColumn] = [(Column("measure"), [*self.means])]
        for place, heading in enumerate(("original", "again")):
            columns.append((right(heading), [pair[place] for pair in self.means.values()]))
        state = "unchanged" if self.unchanged else "changed"
        tables = [table_of(f"{self.name}: {state}", columns, notes)]
        if self.differences:
            rows = [(each.kind, each.name, each.original, each.again) for each in self.differences]
            heads = Column("what", wrap="never"), Column("name"), Column("original"), Column("again")
            tables.append(Table("what differs", heads, rows))
        return tables


def reproduce(
    folder: str | Path,
    *,
    against: str | Path | None = None,
    overrides: Sequence[str] = (),
    output: str | Path | None = None,
    progress: Progress = silent,
) -> list[Reproduction]:
    """Run the manifest of a result again, with nothing from its cache, and say what differs.

    Args:
        folder: The result folder, of one collection or of a suite.
        against: A result that was run again before, perhaps elsewhere; nothing is run then.
        overrides: `key.path=value` strings, such as the place of the data on this machine.
        output: Folder of the result folders that are written; None keeps none.
        progress: Opens progress bars; none by default.

    Returns:
        What differs of the result, of a suite one for each collection.

    Raises:
        InputError: The folder has no result, or its manifest cannot be run.
    """
    folder = Path(folder)
    original = read_result(folder)
    for result in original.collections:
        ranking_file(result.folder)  # which is compared at the end
    if against:
        again = read_result(against)
        of_again = {collection.name: collection for collection in again.collections}
        names = [collection.name for collection in original.collections]
        if original.suite is None and again.suite is None:
            of_again = dict(zip(names, again.collections, strict=True))  # a result has the name of its run
        if of_again.keys() != set(names):
            raise InputError(
                f"{folder} and {against} are not of the same collections",
                allowed="results of one collection, or of one suite of which the same collections were run",
                fix="name another folder",
            )
        return [compare_with_original(each, of_again[each.name]) for each in original.collections]
    with temporary_folder() as place:
        parent = place if output is None else Path(output)
        if original.suite:  # its collections' results are written below its name
            parent /= folder.resolve().name
        configs = []
        for result in original.collections:
            raw = copy.deepcopy(result.manifest.config)
            for override in overrides:
                apply_override(raw, override)
            raw |= {"cache": str(place / "indexes"), "output": str(parent)}
            given = [*overrides, "cache", "output"]
            configs.append(make_config(raw, result.folder / MANIFEST, given=given))
            if result.folder.resolve() == (parent / configs[-1].name).resolve():
                raise InputError(
                    f"output {parent}: the result that is run again is there",
                    allowed="another folder",
                    fix="name one that does not hold it",
                )
        outcomes = run_benchmarks(configs, progress=progress)
        reproductions = []
        for result, outcome in zip(original.collections, outcomes, strict=True):
            if outcome.result is None:
                raise outcome.error or RuntimeError(f"{outcome.config.name} was not run")
            reproductions.append(compare_with_original(result, outcome.result.only_collection()))
        return reproductions


def compare_with_original(original: CollectionResult, again: CollectionResult) -> Reproduction:
    """Compare a result with the result of running it again, by the measures that both have."""
    measures = [name for name in original.measures if name in again.measures]
    first, second = (_by_query(result, measures) for result in (original, again))
    return Reproduction(
        name=original.record.name,
        queries=len(first | second),
        changed=[query for query in first | second if first.get(query) != second.get(query)],
        means={name: (original.record.metrics[name], again.record.metrics[name]) for name in measures},
        data=list(comparable(original, again).values()),
        differences=list(_differences(original, again)),
    )


def _by_query(result: CollectionResult, measures: Sequence[str]) -> dict[str, tuple[list[float], int]]:
    """For each query its values, none if it is not scored, and a hash of its ranking."""
    with open(ranking_file(result.folder), encoding="utf-8") as file:
        hits = groupby((line.split() for line in file), lambda line: line[0])
        rankings = {query: hash(tuple(line[2] for line in lines)) for query, lines in hits}
    chosen = result.values[:, [result.measures.index(name) for name in measures]].tolist()
    values: dict[str, list[float]] = dict(zip(result.query_ids, chosen, strict=True))
    return {query: (values.get(query, []), rankings.get(query, 0)) for query in values | rankings}


def _differences(original: CollectionResult, again: CollectionResult) -> Iterator[Difference]:
    """What the manifests of two results show to differ: settings first, then inputs, each value once."""
    ours, theirs = original.manifest, again.manifest
    named = set()
    for each in _differing("setting", compared_settings(ours.config), compared_settings(theirs.config)):
        # of two files, the hashes below say whether their content differs
        if not (each.original.startswith("/") and each.again.startswith("/")):
            named.add((each.original, each.again))
            yield each
    for stage in dict.fromkeys([*ours.recipes, *theirs.recipes]):
        recipes = (flatten(each.recipes.get(stage, {})) for each in (ours, theirs))
        # without the keys of other stages, which follow from other values
        before, after = (
            {name: value for name, value in recipe.items() if "." in name or not KEY.fullmatch(str(value))}
            for recipe in recipes
        )
        for each in _differing("input", before, after, where=f"{stage}: "):
            # a setting, and an input of several stages, is in the recipe of each
            if (each.original, each.again) not in named:
                named.add((each.original, each.again))
                yield each
    yield from _differing("version", ours.versions, theirs.versions)
    yield from _differing("hardware", _machine(original), _machine(again))


def _differing(
    kind: str, ours: Mapping[str, object], theirs: Mapping[str, object], where: str = ""
) -> Iterator[Difference]:
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            values = [as_text(each[name]) if name in each else "" for each in (ours, theirs)]
            yield Difference(kind, where + name, *values)


def _machine(result: CollectionResult) -> Facts:
    """The hardware of a result, and the threads of its stages; free memory does not count."""
    machine = result.manifest.hardware.found()
    machine.pop("memory_gb", None)
    threads = {row.threads for row in result.record.all_stages if row.threads}
    return {**machine, "threads": max(threads)} if threads else machine
