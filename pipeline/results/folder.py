"""The result folder of one collection: what it holds, and how it is read.

It holds `metrics.json`, `per_query.csv`, `run.trec`, `manifest.json` and `checksums.json`, which is written
last: a folder that has one is complete.
"""

from __future__ import annotations

import difflib
import json
import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from pipeline.core.errors import InputError
from pipeline.core.records import Facts, Float64
from pipeline.core.result_records import Record
from pipeline.metrics.presentation import read_per_query
from pipeline.metrics.statistics import draws_of
from pipeline.results.records import Manifest, Metrics
from pipeline.storage import whole_files
from pipeline.storage.whole_files import CHECKSUMS, MANIFEST, METRICS, PER_QUERY, RANKING, SUITE

log = logging.getLogger(__name__)

FILES = (METRICS, PER_QUERY, RANKING, MANIFEST)
READ_BY_ALL = (METRICS, PER_QUERY, MANIFEST)
"""What every reader needs. The ranking, the largest file, is checked by whoever reads it: `ranking_file`."""
ROUNDING = 1e-9  # a mean in metrics.json and that of the table per query may differ by so much

R = TypeVar("R", bound=Record)


@dataclass(eq=False)
class CollectionResult:
    """The result of one collection, read from its folder."""

    folder: Path  # where it was read
    record: Metrics  # the content of `metrics.json`
    manifest: Manifest  # the content of `manifest.json`
    query_ids: list[str]  # every judged query, in the order of `per_query.csv`
    measures: list[str]  # the columns of `per_query.csv`, in its order
    values: Float64  # float64 [queries, measures]
    # The content of `metrics.json` as it is written; empty for the scores of a run file.
    document: Facts = field(default_factory=dict)
    edited: str = ""  # what was changed after the run; see `check_files`
    # The cluster of each query, None where it has none; empty without `evaluate.cluster`.
    clusters: Sequence[str | None] = ()

    @property
    def draws(self) -> list[str | tuple[str]]:
        """What is drawn with each query: its cluster, or itself."""
        return draws_of(self.query_ids, self.clusters)

    @property
    def name(self) -> str:
        """The collection's name in its suite; of a benchmark of one collection, the benchmark's."""
        return self.record.name

    @property
    def key(self) -> str:
        """The key of the scores, which covers all that shaped them; "" where it is not known."""
        return str(self.manifest.recipes.get("evaluate", {}).get("key", ""))


def read_collection_result(folder: Path) -> CollectionResult:
    """Read the result folder of one collection.

    Raises:
        InputError: It is not a result folder, is not finished, or its files are damaged.
    """
    absent = [name for name in READ_BY_ALL if not (folder / name).is_file()]
    if len(absent) == len(READ_BY_ALL):
        raise _not_a_result(folder)
    if absent:
        raise _unusable(folder, f"is not finished: it has no {' and no '.join(absent)}")
    edited = whole_files.check_files(folder, READ_BY_ALL)
    record = read_record(folder, METRICS, Metrics)
    manifest = _without_its_cache(folder, read_record(folder, MANIFEST, Manifest))
    try:
        query_ids, measures, values = read_per_query(folder / PER_QUERY)
    except ValueError as error:
        raise _unusable(folder, f"is damaged: {PER_QUERY}: {error}") from None
    distinct = len(set(query_ids))
    if not record.queries == len(query_ids) == distinct:
        counts = f"counts {record.queries} queries, {PER_QUERY} has {distinct} in {len(query_ids)} rows"
        raise _unusable(folder, f"is damaged: {METRICS} {counts}")
    means = dict(zip(measures, values.mean(axis=0).tolist() if query_ids else (), strict=True))
    if means.keys() != record.metrics.keys():
        raise _unusable(folder, f"is damaged: {METRICS} and {PER_QUERY} have other measures")
    for name, mean in means.items():
        if not abs(mean - record.metrics[name]) <= ROUNDING:
            raise _unusable(folder, f"is damaged: the mean of {name} is not that of {PER_QUERY}")
    document = json.loads((folder / METRICS).read_bytes())
    clusters, count = record.clusters, len(query_ids)
    if len(clusters) not in (0, count):
        raise _unusable(folder, f"is damaged: {METRICS} has {len(clusters)} clusters of {count} queries")
    return CollectionResult(folder, record, manifest, query_ids, measures, values, document, edited, clusters)


def _without_its_cache(folder: Path, manifest: Manifest) -> Manifest:
    """A manifest that names no cache which may have come with it: what that holds was not computed here."""
    named = {manifest.cache, str(manifest.config.get("cache") or "")} - {""}
    brought = sorted(cache for cache in named if whole_files.comes_with(cache, folder))
    if not brought:
        return manifest
    log.warning(
        "%s: its cache %s came with it or is behind a link: it is read only where --set cache=%s names it",
        folder, brought[0], shlex.quote(brought[0]),
    )  # fmt: skip
    kept = "" if manifest.cache in brought else manifest.cache
    config = {
        name: value for name, value in manifest.config.items() if name != "cache" or value not in brought
    }
    return manifest.model_copy(update={"cache": kept, "config": config})


def ranking_file(folder: Path) -> Path:
    """The ranking of a finished result, as a TREC run.

    Raises:
        InputError: There is none.
    """
    if not (folder / RANKING).is_file():
        raise _unusable(folder, f"has no {RANKING}, which is read here")
    whole_files.check_files(folder, [RANKING])
    return folder / RANKING


RUN_AGAIN = "run its config again; what is in the cache is not computed again"


def read_record(folder: Path, name: str, record: type[R], fix: str = RUN_AGAIN) -> R:
    """One of the JSON files of a result folder; `fix` says what writes it anew.

    Raises:
        InputError: It is not JSON, lacks a key, or has a value of another type.
    """
    if not (folder / name).is_file():  # a pipe would wait for a writer
        raise _unusable(folder, f"has no file {name}")
    try:
        return record.model_validate_json((folder / name).read_bytes(), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if not first["loc"]:
        raise _unusable(folder, f"is damaged: {name} is not a JSON object ({first['msg']})", fix)
    where = ".".join(map(str, first["loc"]))
    raise _unusable(folder, f"is damaged: '{where}' in {name}: {first['msg']}", fix)


def _not_a_result(folder: Path) -> InputError:
    """The error for a path without a result, which names the results below it, or those of a similar name."""
    below = sorted(path.parent.name for path in folder.glob(f"*/{METRICS}"))
    fix = f"it contains results; name one of them: {', '.join(below)}"
    if not below:
        beside = [path.parent.name for name in (METRICS, SUITE) for path in folder.parent.glob(f"*/{name}")]
        near = difflib.get_close_matches(folder.name, beside, 1, 0.75)
        fix = f"did you mean {folder.with_name(near[0])}" if near else "check the path"
    found = "is not a result folder" if folder.exists() else "does not exist"
    allowed = "a folder that benchmarco run wrote, such as results/quickstart"
    return InputError(f"{folder} {found}", allowed=allowed, fix=fix)


def _unusable(folder: Path, what: str, fix: str = RUN_AGAIN) -> InputError:
    return InputError(
        f"result folder {folder} {what}", allowed=f"a complete one: {', '.join((*FILES, CHECKSUMS))}", fix=fix
    )
