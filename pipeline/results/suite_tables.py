"""The table of a suite's run: collections and measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.core.display import counted, interval, rounded
from pipeline.core.table import Cell, Column, Table
from pipeline.results.main_measures import MAIN, main_measures_note, measure_in
from pipeline.results.records import Metrics

MACRO = "macro mean"
GROUPED = "Collections of one group count as one in a macro mean: {}."
NO_MACRO_INTERVAL = (
    "No interval is shown where few queries decide a macro mean: fewer than 24 degrees of freedom, or fewer "
    "than 5 values that differ from the most common one of their collection."
)


def suite_table(document: Mapping[str, Any], records: Mapping[str, Metrics]) -> Table:
    """A collection a row with its measures, then the macro means and their intervals.

    Args:
        document: The content of `suite.json`.
        records: Of the collections that were run.
    """
    measures = list(dict.fromkeys(name for record in records.values() for name in record.metrics))
    main_measures = document.get("main_measures", {})
    measures += [MAIN] if MAIN in document["metrics"] else []
    columns = [Column("collection"), Column("queries", "right"), Column("passages", "right")]
    columns += [Column(name, "right") for name in measures]
    rows: list[list[str]] = []
    for name in document["collections"]:
        if record := records.get(name):
            sizes = [Cell(f"{size:,}", size) for size in (record.queries, record.passages)]
            means = (_mean(record.metrics, measure_in(name, each, main_measures)) for each in measures)
            rows.append([name, *sizes, *means])
        else:
            rows.append([name, "failed", *[""] * (len(measures) + 1)])
    notes = [f"{name} failed: {why}" for name, why in document["failed"].items()]
    if document["metrics"]:
        rows.append([MACRO, "", "", *(_mean(document["metrics"], measure) for measure in measures)])
        ends = {name: document["intervals"].get(name) or (None, None) for name in measures}
        if not all(ends[name][0] is not None for name in document["metrics"]):
            notes.append(NO_MACRO_INTERVAL)
        rows.append(["95% interval", "", "", *(interval(*ends[name]) for name in measures)])
    else:
        whole = counted(len(document["collections"]), "collection")
        notes.append(f"No macro mean: {len(document['failed']):,} of {whole} failed.")
    if MAIN in measures:
        notes.append(f"{main_measures_note(main_measures)}.")
    if groups := sorted(set(document["groups"].values())):
        notes.append(GROUPED.format(", ".join(groups)))
    title = f"{document['name']}: {counted(len(document['collections']), 'collection')}"
    return Table(title, columns, rows, notes)


def _mean(means: Mapping[str, float], measure: str) -> Cell:
    return Cell(rounded(means.get(measure)), means.get(measure))
