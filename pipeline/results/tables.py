"""Tables of finished runs: the measures and the stages of one, and a summary and the times of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.core.display import AFTER_MEAN, FRAGILE, counted, figure, interval
from pipeline.core.records import Facts
from pipeline.core.result_records import columns_of
from pipeline.core.table import Cell, Column, FilledColumn, Table, right, table_of
from pipeline.metrics.presentation import NO_INTERVAL, measure_table
from pipeline.results.published import VERDICTS, ScoreCheck, decimals
from pipeline.results.records import Metrics, kinds_of

WIDE = 80
"""A terminal of fewer characters shows less of each stage."""
PEAK = Column("peak MB", "right", from_width=WIDE, form=",.0f")


def mean_sentence(
    what: str, mean: float, low: float | None, high: float | None, fragile: bool, queries: int
) -> str:
    """A mean with its interval, as a sentence without its full stop."""
    ends = interval(low, high, fragile, ends=AFTER_MEAN)
    return f"{what} is {figure(mean)}{ends} over {counted(queries, 'query', 'queries')}"


def result_table(record: Metrics) -> Table:
    """A measure a row, under the benchmark's name and size, and what to know before trusting the measures."""
    scored = record.queries if record.metrics else record.unjudged_queries
    queries, passages = counted(scored, "query", "queries"), counted(record.passages, "passage")
    judged = {name: each.judged for name, each in record.unjudged.items()}
    published = {
        check.measure: (check.expected, check.verdict) for check in record.expected if check.got is not None
    }
    before = record.first_stage.metrics if record.first_stage else {}
    title, shown = f"{record.name}: {queries}, {passages}", (record.metrics, record.intervals, record.fragile)
    table = measure_table(title, *shown, judged, published, before)
    notes = [
        f"{check.measure}, published as {check.expected:g}: {check.verdict}, {check.reason}."
        for check in record.expected
        if check.got is None
    ]
    notes += [f"{queries} without judgments: nothing is scored."] if scored and not record.metrics else []
    notes += [f"{note}." for section in record.sections for note in section.notes()]
    notes += [f"{note}." for note in record.notes]
    return replace(table, notes=[*table.notes, *notes, *_model_notes([record])])


def published_table(scores: Sequence[ScoreCheck], name: str = "", notes: Sequence[str] = ()) -> Table:
    """A published score a row, with the measured one and the verdict; `name` begins the title."""
    verdicts = [score.verdict for score in scores]
    counts = [f"{verdicts.count(each):,} {each}" for each in VERDICTS if each in verdicts]
    title = f"{counted(len(scores), 'published score')}: {', '.join(counts)}"
    columns: list[FilledColumn] = [
        *columns_of(scores, [(name, name, "") for name in ("model", "collection", "measure")]),
        (right("expected"), [score_figure(score.expected, score) for score in scores]),
        (right("got"), [score_figure(score.got, score) for score in scores]),
        *columns_of(scores, [("difference", "difference", "+.4f")]),
        *columns_of(scores, [(name, name, "") for name in ("verdict", "source", "reason")]),
    ]
    return table_of(f"{name}, {title}" if name else title, columns, notes)


def score_figure(value: float | None, score: ScoreCheck) -> Cell:
    """A mean with the decimal places of the published one, four at least and seven at most."""
    places = max(4, min(7, score.digits if score.digits < 7 else decimals(score.expected)))
    return Cell(figure(value, f".{places}f"), value)


def _model_notes(records: Sequence[Metrics]) -> list[str]:
    """What ran each model whose backend was left to `auto`, and which of its settings are only defaults."""
    models = [model for record in records for model in record.models]
    backends = (
        f"{model.name}: backend {model.backend}, {model.precision} (chosen by auto)."
        for model in models
        if model.auto
    )
    defaults = (f"{model.name}: {model.guessed}." for model in models if model.guessed)
    return list(dict.fromkeys([*backends, *defaults]))


def stage_table(record: Metrics) -> Table:
    """A stage a row: what the run did with its artifact, and what it took to compute it."""
    rows = record.all_stages
    columns: list[FilledColumn] = [
        (Column("stage"), [row.stage for row in rows]),
        (Column("artifact"), [row.outcome for row in rows]),
        *columns_of(rows, [("items", "items", ","), ("seconds", "seconds", ",.2f")]),
        *columns_of(rows, [("items/s", "items_per_second", "rate")]),
        (PEAK, [row.peak_rss_mb for row in rows]),
        (Column("key", from_width=WIDE), [row.key[:12] for row in rows]),
    ]
    copied = [
        f"{row.stage}: {row.found:,} of {row.items or 0:,} texts had been encoded before"
        for row in record.stages
        if row.found
    ]
    rate = ["items/s: in the seconds of the work itself, without loading models or writing files"]
    rate = rate if any(row.working_seconds for row in rows) else []
    once = [
        f"{row.stage}: packing, converting or compiling took another {row.preparing_seconds:,.1f} s, once"
        for row in rows
        if row.preparing_seconds
    ]
    notes = [*rate, *once, *copied, *_earlier(record)]
    return table_of("stages", columns, notes, keep_empty=True)


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


def summary_table(records: Sequence[Metrics], total: int) -> Table:
    """A finished benchmark a row, of `total` that were to be run: every measure's mean, and what it took."""
    measures = dict.fromkeys(name for record in records for name in record.metrics)
    rows: list[tuple[str, Mapping[str, float], Metrics | None]] = []
    for record in records:
        if first := record.first_stage:
            rows.append((f"{record.name}, before reranking", first.metrics, None))
        rows.append((record.name, record.metrics, record))
    stages = [record.all_stages if record else () for *_, record in rows]
    computed = [f"{sum(row.outcome == 'computed' for row in each)} of {len(each)}" for each in stages]
    columns: list[FilledColumn] = [
        (Column("result"), [name for name, *_ in rows]),
        *((right(name), [means.get(name) for _, means, _ in rows]) for name in measures),
        (
            right("seconds", form=",.1f"),
            [sum(row.seconds or 0 for row in each) if each else None for each in stages],
        ),
        (right("computed"), [text if each else "" for text, each in zip(computed, stages, strict=True)]),
    ]
    title = f"{len(records):,} of {total:,} benchmarks finished"
    exact = [(record.name, section) for record in records if (section := record.against_exact)]
    notes = [f"{name}: {note}." for name, section in exact for note in section.notes()]
    notes += [*most_truncated(records), *collection_notes(records), *_model_notes(records)]
    return table_of(title, columns, notes, keep_empty=True)


def most_truncated(records: Sequence[Metrics]) -> list[str]:
    """What the model of one result does not read of its texts: the one of which it reads the least."""
    sections = [(record.name, section) for record in records if (section := record.truncation)]
    cut = [(name, section) for name, section in sections if section.notes()]
    if not cut:
        return []
    name, section = max(cut, key=lambda pair: pair[1].unread)
    others = f"; texts of {counted(len(cut) - 1, 'other result')} are cut, too" if len(cut) > 1 else ""
    return [f"{name}: {section.notes()[0]}{others}."]


def collection_notes(records: Sequence[Metrics]) -> list[str]:
    """What collections say of themselves, each with the names of the results it holds for."""
    names_of: dict[str, list[str]] = {}  # by note
    for record in records:
        if record.collection_note:
            names_of.setdefault(record.collection_note, []).append(record.name)
    return [f"{', '.join(names)}: {note}." for note, names in names_of.items()]


MACRO = "macro mean"
GROUPED = "Collections of one group count as one in a macro mean: {}."


THESE, SUCH = ", these collections", "all such collections"


def intervals_of(such: bool) -> str:
    """Which means a suite's table has intervals of; `such` says whether those of `SUCH` are among them."""
    return f"95% intervals of these {f'and of {SUCH}' if such else 'collections'}"


def suite_table(
    document: Facts, records: Mapping[str, Metrics], means: Mapping[str, Mapping[str, float]]
) -> Table:
    """A collection a row with its measures, then the macro means and their intervals.

    Args:
        document: The content of `suite.json`.
        records: Of the collections that were run.
        means: By collection; with those of measures that only the suite has.
    """
    measures = dict.fromkeys(name for record in records.values() for name in record.metrics)
    measures |= dict.fromkeys(document["metrics"])
    rows: list[tuple[str, int | str | None, int | None, Mapping[str, Any]]] = []
    for name in document["collections"]:
        if record := records.get(name):
            rows.append((name, record.queries, record.passages, means[name]))
        else:
            rows.append((name, "failed", None, {}))
    notes = [f"{name} failed: {why}" for name, why in document["failed"].items()]
    notes += most_truncated(list(records.values()))
    notes += collection_notes(list(records.values()))
    whole = counted(len(document["collections"]), "collection")
    title = f"{document['name']}: {whole}"
    if document["metrics"]:
        over = document["intervals_over_collections"]
        title += f"; {intervals_of(bool(over))}"
        rows.append((MACRO, None, None, document["metrics"]))
        ends = {name: tuple(document["intervals"].get(name) or (None, None)) for name in measures}
        if not all(ends[name][0] is not None for name in document["metrics"]):
            notes.append(NO_INTERVAL)
        marks = {name: document["fragile"].get(name, False) for name in measures}
        notes += [FRAGILE] if any(marks.values()) else []
        texts = {name: interval(ends[name][0], ends[name][1], marks[name]) for name in measures}
        rows.append(("95% interval" + THESE * bool(over), None, None, texts))
        if over:
            rows.append((f"95% interval, {SUCH}", None, None, {name: tuple(over[name]) for name in over}))
    else:
        unjudged = [name for name, record in records.items() if not record.metrics]
        why = f"{len(document['failed']):,} of {whole} failed"
        if unjudged:
            why = f"nothing is judged in {', '.join(unjudged)}"
        notes.append(f"No macro mean: {why}.")
    if groups := sorted(set(document["groups"].values())):
        notes.append(GROUPED.format(", ".join(groups)))
    columns: list[FilledColumn] = [
        (Column("collection"), [name for name, *_ in rows]),
        (Column("queries", "right", form=","), [queries for _, queries, *_ in rows]),
        (Column("passages", "right", form=","), [passages for _, _, passages, _ in rows]),
        *((Column(name, "right"), [cells.get(name) for *_, cells in rows]) for name in measures),
    ]
    return table_of(title, columns, notes, keep_empty=True)


def requests_table(name: str, record: Metrics) -> Table | None:
    """What servers were asked, a stage a row: requests, tokens, price, speed, and time of a single query."""
    rows = [(row, row.encoding) for row in record.all_stages if row.encoding and row.encoding.requests]
    if not rows:
        return None
    uses = [usage for _, usage in rows]
    columns: list[FilledColumn] = [(Column("stage"), [row.stage for row, _ in rows])]
    columns += columns_of(uses, [(name, name, ",") for name in ("requests", "retries", "tokens")])
    columns += columns_of(uses, [("price", "price", ",.4g")])
    columns.append((Column("items/s", "right", form="rate"), [row.items_per_second for row, _ in rows]))
    notes = ["Requests include those that were sent again. Figures are those of the run that asked."]
    if any(usage.seconds_alone for usage in uses):
        for label in ("median", "p95", "p99"):
            alone = [getattr(usage.seconds_alone, label, None) for usage in uses]
            columns.append((Column(f"{label} s", "right", form=",.3f"), alone))
        notes += [
            f"{row.stage}: seconds from a request of one text to its answer, for "
            f"{usage.seconds_alone.texts:,} texts, with {usage.concurrency} requests under way at once."
            for row, usage in rows
            if usage.seconds_alone
        ]
    return table_of(f"{name}: what the server was asked", columns, notes)


def section_tables(results: Mapping[str, Metrics], measure: str) -> dict[str, list[Table]]:
    """By heading, the tables of what only some kinds of retrievers report, and of what servers were asked.

    `results` by name; `measure` is what they are compared by.
    """
    tables: dict[str, list[Table]] = {}
    for kind in kinds_of(results.values()):
        filled = (table for table in kind.tables(results, measure) if table.rows)  # none without a measure
        tables.setdefault(kind.heading, []).extend(filled)
    requests = [requests_table(name, record) for name, record in results.items()]
    if served := [table for table in requests if table]:
        tables["Served models"] = [*served, *tables.get("Served models", [])]
    return {heading: shown for heading, shown in tables.items() if shown}
