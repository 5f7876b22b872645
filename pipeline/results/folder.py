"""The result folder `OUTPUT/NAME/` of a finished benchmark: what it holds, and how it is read.

It holds `metrics.json`, `per_query.csv`, `run.trec` and `manifest.json`, which is written last: a folder that
has one is complete.
"""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from pydantic import ValidationError

from pipeline.core.errors import InputError
from pipeline.core.json_record import SUITE_FILE, Record
from pipeline.core.records import Facts, Float64
from pipeline.core.table import Displayed, Table
from pipeline.results.records import Manifest, Metrics
from pipeline.results.tables import mean_sentence, result_table
from pipeline.storage.whole_files import MANIFEST

if TYPE_CHECKING:
    import pandas as pd

METRICS, PER_QUERY, RUN = "metrics.json", "per_query.csv", "run.trec"
FILES = (METRICS, PER_QUERY, RUN, MANIFEST)
READ = (METRICS, PER_QUERY, MANIFEST)
"""What a comparison reads: a kept baseline may lack the ranking, the largest file."""
ROUNDING = 1e-9  # a mean in metrics.json and that of the table per query may differ by so much

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, repr=False)
class Result(Displayed):
    """A finished benchmark.

    Attributes:
        folder: Where its files are.
        metrics: The content of `metrics.json`, as plain JSON.
    """

    folder: Path
    metrics: Facts

    @cached_property
    def record(self) -> Metrics:
        """The content of `metrics.json`, typed."""
        return Metrics.model_validate(self.metrics)

    def __fspath__(self) -> str:
        """The folder, so that a result is accepted wherever its folder is."""
        return str(self.folder)

    @property
    def reused(self) -> list[str]:
        """The stages whose artifacts were in the cache."""
        return [row.stage for row in self.record.all_stages if row.reused]

    of_suite: ClassVar[bool] = False

    @property
    def verdict(self) -> str:
        """The first measure's mean with its interval, as a sentence without its full stop; "" without one."""
        record = self.record
        for measure, mean in record.metrics.items():
            low, high = record.intervals.get(measure) or (None, None)
            return mean_sentence(record.name, measure, mean, low, high, record.queries, self.of_suite)
        return ""

    def to_dataframe(self) -> pd.DataFrame:
        """The values as a pandas DataFrame: a row per scored query, a column per measure."""
        import pandas as pd

        saved = read_result(self.folder)
        index = pd.Index(saved.query_ids, name="query_id")
        return pd.DataFrame(saved.values, index=index, columns=list(saved.measures))

    def tables(self) -> list[Table]:
        """The measures."""
        notes = [f"reused: {', '.join(self.reused) or 'nothing'}", f"in {self.folder}"]
        table = result_table(self.record)
        return [replace(table, notes=[*table.notes, *notes])]


@dataclass
class SavedResult:
    """A finished benchmark, read from its folder.

    Attributes:
        folder: Where it was read.
        record: The content of `metrics.json`.
        manifest: The content of `manifest.json`.
        query_ids: Every judged query, in the order of `per_query.csv`.
        measures: The columns of `per_query.csv`, in its order.
        values: float64 [queries, measures].
        sources: Checksums of the files that hold the judgments, and the passages and queries that they judge;
            and the settings that choose among these.
    """

    folder: Path
    record: Metrics
    manifest: Manifest
    query_ids: list[str]
    measures: list[str]
    values: Float64
    sources: dict[str, object] = field(init=False)

    def __post_init__(self) -> None:
        sources = self.manifest.recipes.get("evaluate", {}).get("qrels")
        self.sources = {**sources.get("settings", {}), **sources} if isinstance(sources, dict) else {}


def read_result(folder: PathLike[str] | str) -> SavedResult:
    """Read a result folder.

    Raises:
        InputError: It is not a result folder, is not finished, or its files are damaged.
    """
    folder = Path(folder)
    absent = [name for name in READ if not (folder / name).is_file()]
    if len(absent) == len(READ):
        raise _not_a_result(folder)
    if absent:
        raise _unusable(folder, f"is not finished: it has no {' and no '.join(absent)}")
    record = read_record(folder, METRICS, Metrics)
    manifest = read_record(folder, MANIFEST, Manifest)
    try:
        with open(folder / PER_QUERY, encoding="utf-8", newline="") as file:
            header, *lines = list(csv.reader(file))
        if (not lines and header[1:]) or any(len(line) != len(header) for line in lines):
            raise ValueError("the file is cut short")
        values = np.array([line[1:] for line in lines], np.float64).reshape(len(lines), len(header) - 1)
    except (ValueError, csv.Error) as error:
        raise _unusable(folder, f"is damaged: {PER_QUERY}: {error}") from None
    query_ids = [line[0] for line in lines]
    distinct = len(set(query_ids))
    if not record.queries == len(lines) == distinct:
        counts = f"counts {record.queries} queries, {PER_QUERY} has {distinct} in {len(lines)} rows"
        raise _unusable(folder, f"is damaged: {METRICS} {counts}")
    means = dict(zip(header[1:], values.mean(axis=0).tolist() if lines else (), strict=True))
    if means.keys() != record.metrics.keys():
        raise _unusable(folder, f"is damaged: {METRICS} and {PER_QUERY} have other measures")
    for name, mean in means.items():
        if not abs(mean - record.metrics[name]) <= ROUNDING:
            raise _unusable(folder, f"is damaged: the mean of {name} is not that of {PER_QUERY}")
    return SavedResult(folder, record, manifest, query_ids, header[1:], values)


def read_record(folder: Path, name: str, record: type[R]) -> R:
    """One of the JSON files of a result folder.

    Raises:
        InputError: It is not JSON, lacks a key, or has a value of another type.
    """
    if not (folder / name).is_file():  # a pipe would wait for a writer
        raise _unusable(folder, f"has no file {name}")
    try:
        return record.model_validate_json((folder / name).read_bytes(), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":
        where, _, why = first["msg"].removeprefix("Value error, ").partition(": ")
        raise _unusable(folder, f"is damaged: {where} in {name}: {why}")
    if not first["loc"]:
        raise _unusable(folder, f"is damaged: {name} is not a JSON object ({first['msg']})")
    where = ".".join(map(str, first["loc"]))
    raise _unusable(folder, f"is damaged: '{where}' in {name}: {first['msg']}")


def _not_a_result(folder: Path) -> InputError:
    """The error for a path without a result, which names the results below it, or those of a similar name."""
    below = sorted(path.parent.name for path in folder.glob(f"*/{METRICS}"))
    fix = f"it contains results; name one of them: {', '.join(below)}" if below else "check the path"
    if (folder / SUITE_FILE).is_file():
        found = "holds a suite, and one collection is needed here"
    elif folder.is_dir():
        found = "is not a result folder"
    elif folder.exists():
        found = "is not a folder"
    else:
        found = "does not exist"
        beside = (folder.parent.glob(f"*/{name}") for name in (METRICS, SUITE_FILE))
        names = [path.parent.name for paths in beside for path in paths]
        if near := difflib.get_close_matches(folder.name, names, 3, 0.75):
            fix = f"did you mean {' or '.join(str(folder.with_name(name)) for name in near)}"
    allowed = "a folder that benchmarco run wrote, such as results/quickstart"
    return InputError(f"{folder} {found}", allowed=allowed, fix=fix)


def _unusable(folder: Path, what: str) -> InputError:
    return InputError(
        f"result folder {folder} {what}",
        allowed=f"a complete one: {', '.join(FILES)}",
        fix="run its config again; what is in the cache is not computed again",
    )
