"""Tables of finished runs: the measures and the stages of one, and a summary and the times of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.core.display import counted, decimal, interval, rate, rounded
from pipeline.core.json_record import EncodingUsage, StageRow
from pipeline.core.table import Cell, Column, FilledColumn, Table, measure_table, table_of
from pipeline.results.records import Metrics
from pipeline.retrievers.sections import SECTIONS

WIDE = 80
"""A terminal of fewer characters shows less of each stage."""
PEAK = Column("peak MB", "right", from_width=WIDE)
STAGE_COLUMNS = (
    Column("stage"),
    Column("artifact"),
    *(Column(name, "right") for name in ("items", "seconds", "items/s")),
    PEAK,
    Column("key", from_width=WIDE),
)


def result_table(record: Metrics) -> Table:
    """A measure a row, under the benchmark's name and size, and what is judged and not in the collection."""
    queries, passages = counted(record.queries, "query", "queries"), counted(record.passages, "passage")
    title = f"{record.name}: {queries}, {passages}"
    judged = {name: each.judged for name, each in record.unjudged.items()}
    table = measure_table(title, record.metrics, record.intervals, judged)
    short = [f"{record.short_rankings.note}."] if record.short_rankings else []
    missing = record.missing.notes if record.missing else []
    own = [note for section in record.sections for note in section.notes()]
    notes = [*table.notes, *own, *short, *(f"{note}." for note in missing), *_taken([record])]
    return replace(table, notes=notes)


def _taken(records: Sequence[Metrics]) -> list[str]:
    """What ran each model whose backend was left to `auto`, as notes."""
    models = (model for record in records for model in record.models if model.auto)
    return list(dict.fromkeys(f"{model.note}, which auto took." for model in models))


def stage_table(record: Metrics) -> Table:
    """A stage a row: what the run did with its artifact, and what it took to compute it."""
    rows = [
        (
            row.stage,
            row.outcome,
            Cell("" if row.items is None else f"{row.items:,}", row.items),
            Cell(decimal(row.seconds, 2), row.seconds),
            Cell(rate(row.items_per_second), row.items_per_second),
            Cell(decimal(row.peak_rss_mb, 0), row.peak_rss_mb),
            row.key[:12],
        )
        for row in record.all_stages
    ]
    stages = {row.stage: row for row in record.stages}
    own = [note for section in record.sections for note in section.stage_notes(stages, record.passages)]
    notes = [*_encoding(record.stage("passages")), *own, *_found(record), *_earlier(record)]
    return Table("stages", STAGE_COLUMNS, rows, notes)


def _found(record: Metrics) -> Iterator[str]:
    """For each stage that copied rows, a note of how many."""
    for row in record.stages:
        if row.found:
            yield f"{row.stage}: {row.found:,} of {row.items or 0:,} texts had been encoded before"


def _earlier(record: Metrics) -> Iterator[str]:
    """For each day and machine of earlier runs, a note of the reused stages that were timed there."""
    stages: dict[str, list[str]] = {}
    for row in record.stages:
        if row.reused and row.made_at and row.hardware:
            cpu, cores, gpus = row.hardware.processors
            where = ", ".join([cpu, counted(cores or 0, "core"), counted(row.threads or 0, "thread"), *gpus])
            stages.setdefault(f"{row.made_at[:10]}: {where}", []).append(row.stage)
    for run, names in stages.items():
        yield f"{', '.join(names)}: timed in an earlier run of {run}"


def _encoding(row: StageRow) -> list[str]:
    """What encoding took, as a note; the tokenizer works beside the model."""
    if row.encoding is None or row.encoding.requests is not None:
        return []
    usage = row.encoding
    per_text = (row.items_per_second or 0) / max(usage.texts, 1)
    return [
        f"{row.stage}: {usage.tokens * per_text:,.0f} tokens/s; "
        f"tokenizer busy {usage.tokenize_seconds * per_text:.1%} of the time; "
        f"padding {usage.padding_share:.1%} of the tokens computed"
    ]


def summary_table(records: Sequence[Metrics], total: int) -> Table:
    """A finished benchmark a row, of `total` that were to be run: every measure's mean, and what it took."""
    measures = dict.fromkeys(name for record in records for name in record.metrics)
    rows = []
    for record in records:
        means = [record.metrics.get(name) for name in measures]
        seconds = sum(row.seconds or 0 for row in record.all_stages)
        computed = sum(row.outcome == "computed" for row in record.all_stages)
        figures = [*(Cell(rounded(mean), mean) for mean in means), Cell(decimal(seconds, 1), seconds)]
        rows.append((record.name, *figures, f"{computed} of {len(record.all_stages)}"))
    columns = [Column(name, "right", "never") for name in (*measures, "seconds", "computed")]
    title = f"{len(records):,} of {total:,} benchmarks finished"
    return Table(title, [Column("result"), *columns], rows, _taken(records))


def time_table(names: Sequence[str], records: Sequence[Metrics]) -> Table:
    """A result a row: the seconds of each stage, in the plan's order, and of all, and the most memory."""
    stages = list(dict.fromkeys(row.stage for record in records for row in record.all_stages))
    rows = []
    for name, record in zip(names, records, strict=True):
        seconds_of = {row.stage: row.seconds for row in record.all_stages}
        seconds = [seconds_of.get(stage) for stage in stages]
        total = sum(value or 0 for value in seconds)
        peak = max((row.peak_rss_mb or 0 for row in record.all_stages), default=0) or None
        cells = [Cell(decimal(value, 2), value) for value in seconds]
        rows.append((name, *cells, Cell(decimal(total, 1), total), Cell(decimal(peak, 0), peak)))
    columns = [Column(name, "right", "never") for name in (*stages, "total")]
    return Table("seconds of each stage", [Column("result"), *columns, PEAK], rows, [TIMES])


TIMES = (
    "Each stage is timed in the run that completed its artifact. A stage that several results share ran "
    "once. The work of interrupted runs is not counted."
)


MACRO = "macro mean"
GROUPED = "Collections of one group count as one in a macro mean: {}."
NO_MACRO_INTERVAL = (
    "No interval is shown where few queries decide a macro mean: fewer than 24 degrees of freedom, or fewer "
    "than 5 values that differ from the most common one of their collection."
)


def suite_table(
    document: Mapping[str, Any],
    records: Mapping[str, Metrics],
    means: Mapping[str, Mapping[str, float]],
    more: Sequence[str],
) -> Table:
    """A collection a row with its measures, then the macro means and their intervals.

    Args:
        document: The content of `suite.json`.
        records: Of the collections that were run.
        means: By collection; with those of the measures that are named in `more`.
        more: Measures of the suite alone.
    """
    measures = [*dict.fromkeys(name for record in records.values() for name in record.metrics), *more]
    columns = [Column("collection"), Column("queries", "right"), Column("passages", "right")]
    columns += [Column(name, "right") for name in measures]
    rows: list[list[str]] = []
    for name in document["collections"]:
        if record := records.get(name):
            sizes = [Cell(f"{size:,}", size) for size in (record.queries, record.passages)]
            rows.append([name, *sizes, *(_mean(means[name], each) for each in measures)])
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
    if groups := sorted(set(document["groups"].values())):
        notes.append(GROUPED.format(", ".join(groups)))
    title = f"{document['name']}: {counted(len(document['collections']), 'collection')}"
    return Table(title, columns, rows, notes)


def _mean(means: Mapping[str, float], measure: str) -> Cell:
    return Cell(rounded(means.get(measure)), means.get(measure))


def requests_table(name: str, record: Metrics) -> Table | None:
    """What servers were asked, a stage a row: requests, tokens, price, speed, and time of a single query."""
    rows = [(row, row.encoding) for row in record.all_stages if row.encoding and row.encoding.requests]
    if not rows:
        return None
    uses = [usage for _, usage in rows]
    columns: list[FilledColumn] = [(Column("stage"), [row.stage for row, _ in rows])]
    for label in ("requests", "retries", "tokens"):
        counts = [getattr(usage, label) or 0 for usage in uses]
        columns.append((Column(label, "right"), [Cell(f"{count:,}", count) for count in counts]))
    if any(usage.price is not None for usage in uses):
        prices = [Cell("" if usage.price is None else f"{usage.price:,.4g}", usage.price) for usage in uses]
        columns.append((Column("price", "right"), prices))
    speeds = [row.items_per_second for row, _ in rows]
    columns.append((Column("items/s", "right"), [Cell(rate(speed), speed) for speed in speeds]))
    notes = ["Requests include those that were sent again. Figures are those of the run that asked."]
    if any(usage.seconds_alone for usage in uses):
        columns += [_seconds(uses, label) for label in ("median", "p95", "p99")]
        notes += [
            f"{row.stage}: seconds from a request of one text to its answer, for "
            f"{usage.seconds_alone.texts:,} texts, with {usage.concurrency} requests under way at once."
            for row, usage in rows
            if usage.seconds_alone
        ]
    return table_of(f"{name}: what the server was asked", columns, notes)


def _seconds(uses: list[EncodingUsage], label: str) -> FilledColumn:
    values = [getattr(usage.seconds_alone, label, None) for usage in uses]
    return Column(f"{label} s", "right"), [Cell(decimal(value, 3), value) for value in values]


def section_tables(
    results: Mapping[str, Metrics], measure: str, beside: bool = False
) -> dict[str, list[Table]]:
    """By heading, the tables of what only some kinds of retrievers report, and of what servers were asked.

    Args:
        results: By name.
        measure: What they are compared by.
        beside: Only the tables that are shown beside every comparison.
    """
    tables: dict[str, list[Table]] = {}
    held = {key for record in results.values() for key in record.model_extra or {}}
    for kind in (SECTIONS[key] for key in SECTIONS if key in held):
        if kind.in_comparisons or not beside:
            tables.setdefault(kind.heading, []).extend(kind.tables(results, measure))
    asked = [requests_table(name, record) for name, record in results.items() if not beside]
    if found := [table for table in asked if table]:
        tables["Served models"] = [*found, *tables.get("Served models", [])]
    return {heading: each for heading, each in tables.items() if each}
