"""A board: the results below a folder, those of one collection side by side, and the history of each name."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from os import PathLike
from pathlib import Path

from pipeline.comparison.notes import data_notes
from pipeline.comparison.side_by_side import Comparison, compare
from pipeline.comparison.tables import ColumnGroup, History, PastRun
from pipeline.core.errors import InputError
from pipeline.core.table import Column
from pipeline.results.result import Result, read_result, refuse_edited
from pipeline.storage.hashing import hash_json
from pipeline.storage.whole_files import CHECKSUMS, METRICS, SUITE

log = logging.getLogger(__name__)

DEPTHS = ("*", "*/*")
"""Where results lie below a folder; those of a suite's collections are a part of it."""
EARLIER = re.compile(r"(.+)~(\d+)")
"""The name of the folder in which a result is kept that another one of its name has followed."""


def compare_below(
    folder: Path,
    measure: str | None = None,
    baseline: PathLike[str] | str | None = None,
    detect: float | None = None,
) -> list[Comparison] | None:
    """Compare the results below a folder, those of one collection or suite with each other.

    The other arguments are those of `compare`: results without the measure are left out, None takes the first
    of each collection, and collections without the baseline have all pairs.

    Returns:
        A comparison for each collection, of the newest result of each name; `history` has the earlier ones.
        None where the folder is a result, or no result lies below it.

    Raises:
        InputError: No result can be compared.
    """
    files = [file for depth in DEPTHS for file in sorted(folder.glob(f"{depth}/{CHECKSUMS}"))]
    folders = [file.parent for file in files if not (file.parent.parent / SUITE).is_file()]
    if not folders or any((folder / name).is_file() for name in (METRICS, SUITE)):
        return None
    groups: defaultdict[str, list[Result]] = defaultdict(list)
    for path in folders:
        try:
            result = read_result(path)
            refuse_edited(result)
        except InputError as error:
            log.warning("left out: %s", error)
            continue
        if measure is None or measure in result.measures:
            groups[_identity(result)].append(result)
    labels = [_label(group[0]) for group in groups.values()]
    times = Counter(labels)
    comparisons = []
    for label, group in zip(labels, groups.values(), strict=True):
        queries = f", {group[0].record.queries:,} queries" if times[label] > 1 else ""
        comparisons.append(_compare_group(f"{label}{queries}", group, measure, baseline, detect))
    if not comparisons:
        raise InputError(
            f"{folder}: no result{f' with {measure}' if measure else ' that can be read'}",
            allowed="a folder that holds finished results",
            fix="name another, or another measure",
        )
    return comparisons


def _compare_group(
    label: str,
    group: Sequence[Result],
    measure: str | None,
    baseline: PathLike[str] | str | None,
    detect: float | None,
) -> Comparison:
    """The newest results of each name, and how those of one name followed each other."""
    runs: defaultdict[Path, list[Result]] = defaultdict(list)
    for result in group:
        earlier = EARLIER.fullmatch(result.folder.name)
        runs[result.folder.with_name(earlier[1]) if earlier else result.folder].append(result)
    for each in runs.values():
        each.sort(key=_created)
    newest = [each[-1] for each in runs.values()]
    known = {str(baseline), Path(baseline).resolve()} if baseline else set()
    against = baseline if any({each.name, each.folder.resolve()} & known for each in newest) else None
    comparison = compare(newest, measure, against, detect=detect)
    names = [entry.name for entry in comparison.results]
    history = [
        History(name, list(_past_runs(each, comparison.measure)))
        for name, each in zip(names, runs.values(), strict=True)
        if len(each) > 1
    ]
    notes = [
        f"{_created(before)[:10]} and {_created(after)[:10]}: {note}"
        for each in runs.values()
        for before, after in pairwise(each)
        for note in data_notes([before, after])
    ]
    days = [_created(each)[:10] for each in newest]
    dates = ColumnGroup("run", [{"date": day} for day in days], [(Column("date", wrap="never"), days)], notes)
    return replace(comparison.with_columns([dates]), collection=label, history=history)


def _past_runs(results: Sequence[Result], measure: str) -> Iterator[PastRun]:
    """The results of one name, the oldest first, each with its change from the one before."""
    changed = [False]
    for before, after in pairwise(results):
        changed.append(measure in before.measures and compare([before, after], measure).pairs[0].shown)
    for result, shown in zip(results, changed, strict=True):
        if measure in result.measures:
            yield PastRun(_created(result), result.metrics[measure], shown)


def _created(result: Result) -> str:
    """When the run of the last of its collections ended, as UTC in ISO 8601."""
    return max(each.manifest.created or "" for each in result.collections)


def _identity(result: Result) -> str:
    """Equal for results of the same queries and judgments, which can be compared."""
    collections = [
        {
            "name": each.name if result.suite else "",
            "queries": sorted(each.query_ids),
            "judgments": each.manifest.contents.get("qrels"),
        }
        for each in result.collections
    ]
    return hash_json([collections, bool(result.suite), result.groups])


def _label(result: Result) -> str:
    """What the results are of: the suite, or the end of the collection's path."""
    data = result.collections[0].manifest.config.get("data", {})
    if result.suite:
        return f"suite of {len(result.collections)} collections"
    named = next((str(data[key]) for key in ("subset", "dataset", "path") if data.get(key)), "")
    split = data.get("split") or "test"
    label = named.rstrip("/").rpartition("/")[2] or str(data.get("source") or "collection")
    return label if split == "test" else f"{label} ({split})"
