"""Tables of a plan and of the shipped suites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pipeline.core.display import BYTES, counted, figure
from pipeline.core.table import Cell, Column, Table

if TYPE_CHECKING:
    from pipeline.config.suites import Suite
    from pipeline.core.records import Facts
    from pipeline.run.estimate import RunEstimate, StageEstimate
    from pipeline.run.forecast import Forecast

WIDE = 140
"""A terminal of fewer characters shows less of each collection."""
_SIZES = [Column(name, "right", "never") for name in ("collections", "passages", "queries")]
FIGURES = [Column(name, "right", "never") for name in ("time", "memory", "disk")]
FAR = 1000
"""Times what was measured: from here on, an estimate is said to be rough."""


def plan_table(plan: Forecast) -> Table:
    """A stage a row: whether its artifact is in the cache, its key, and what it takes; the rest as notes."""
    stages = plan.estimate.stages if plan.estimate else {}
    columns = [Column("stage"), *([Column("artifact"), Column("key")] if plan.stages else [])]
    known = {
        row["stage"]: ("cached" if row["exists"] else "not cached", row["key"][:12]) for row in plan.stages
    }
    rows, figures = [], FIGURES
    if any(stage.bytes_per_passage for stage in stages.values()):
        figures = [*FIGURES, Column(BYTES, "right", "never")]
    for role in known or stages:
        takes: list[str] = [""] * len(figures)
        if role in stages:
            each = stages[role].bytes_per_passage
            takes = [*_figures(stages[role]), figure(each, ",.0f") if each else ""][: len(figures)]
        rows.append((role, *known.get(role, ()), *(takes if stages else ())))
    notes = [
        f"model {model['name']}: backend {model['backend']}, {model['precision']} (chosen by auto)."
        for model in plan.models
        if model["auto"]
    ]
    notes += [f"model {model['name']}: {', '.join(_lengths(model['settings']))}." for model in plan.settings]
    if plan.unknown:
        notes.append(f"To be fetched: {plan.unknown}")
    elif plan.fetch:
        where = " and ".join(plan.repositories)
        notes.append(f"To be fetched: {counted(len(plan.fetch), 'file')} of {where}, {_fetched(plan)}.")
    notes += _totals(plan.estimate) if plan.estimate and stages else []
    if plan.passages is None and plan.stages:
        notes.append("--passages N estimates time, memory and disk for N passages.")
    title = plan.name if plan.stages else f"{plan.name}: {counted(plan.passages or 0, 'passage')}"
    return Table(title, [*columns, *(figures if stages else [])], rows, notes)


def _figures(stage: StageEstimate) -> list[str | Cell]:
    """The cells of `FIGURES`."""
    memory = None if stage.memory_mb is None else 1e6 * stage.memory_mb
    known = ((stage.seconds, "time"), (memory, "bytes"), (stage.disk_bytes, "bytes"))
    return ["?" if value is None else Cell(figure(value, form), value) for value, form in known]


def _totals(estimate: RunEstimate) -> list[str]:
    """What a run takes together, what that was measured by, and why it does not fit."""
    total, measured = estimate.total, estimate.measured
    more = f" and what {', '.join(estimate.unknown)} take" if estimate.unknown else ""
    takes = [] if total.seconds is None else [figure(total.seconds, "time") + more]
    takes += [f"{figure(1e6 * total.memory_mb, 'bytes')} of memory"] if total.memory_mb else []
    notes = [f"Together about {', '.join([*takes, figure(total.disk_bytes or 0, 'bytes')])} of disk."]
    if measured is None:
        notes.append("Time: not measured on this machine; --probe does it on a part of the built-in sample.")
    else:
        passages = counted(measured.passages, "passage")
        if tokens := measured.tokens.get("passages"):
            passages += f" of {tokens:.0f} tokens"
        size = f"{passages}, {counted(measured.queries, 'query', 'queries')}"
        notes.append(f"Scaled from what was measured here: {size}, by {measured.origin}.")
        if estimate.passages >= FAR * measured.passages:
            notes.append("That is far: a run of more passages (--set data.corpus=N) tells more.")
    if lacking := estimate.obstacle:
        notes.append(f"Does not fit: {lacking.found}. Fits: {lacking.allowed}. To change: {lacking.fix}.")
    return notes


def _lengths(settings: Facts) -> Iterator[str]:
    """How much a model reads of a text, and where that is set."""
    for name, used in settings.items():
        if name.startswith("tokens "):
            yield f"{name} {used['value']} ({used['source']})"


def forecast_table(plans: Sequence[Forecast]) -> Table:
    """A benchmark a row, and all together."""
    from pipeline.run.estimate import shared_total

    columns = [Column("name"), Column("cached stages", "right"), Column("to fetch", "right")]
    columns += [Column("passages", "right", "never"), *FIGURES, Column("time without"), Column("fits")]
    rows = []
    for plan in plans:
        known = plan.estimate
        done = f"{sum(row['exists'] for row in plan.stages)} of {len(plan.stages)}" if plan.stages else ""
        takes = _figures(known.total) if known else [""] * len(FIGURES)
        rest = [", ".join(known.unknown), "no" if known.obstacle else "yes"] if known else ["", ""]
        fetched = "?" if plan.unknown else _fetched(plan)
        rows.append((plan.name, done, fetched, _number(plan.passages), *takes, *rest))
    unknown = [plan.unknown for plan in plans if plan.unknown]
    fetched_bytes = sum(sum(plan.fetch.values()) for plan in plans)
    size = f"{figure(fetched_bytes, 'bytes') if fetched_bytes else ''}{'?' if unknown else ''}"
    total = shared_total([plan.estimate for plan in plans if plan.estimate])
    rows.append(("all", "", size, "", *_figures(total), "", ""))
    notes = ["all: what several share counts once."]
    notes += [f"?: {counted(len(unknown), 'collection')}, first: {unknown[0]}"] if unknown else []
    return Table(counted(len(plans), "benchmark"), columns, rows, notes)


def _fetched(plan: Forecast) -> str:
    return figure(sum(plan.fetch.values()), "bytes") if plan.fetch else ""


def suites_table(suites: Mapping[str, Suite]) -> Table:
    """A suite a row."""
    columns = [Column("suite", wrap="never"), *_SIZES, Column("measure"), Column("license"), Column("is")]
    rows = [
        (
            name,
            _number(len(suite.collections)),
            _total_of(suite, "passages"),
            _total_of(suite, "queries"),
            suite.main_measure or "",
            suite.license or "",
            suite.description,
        )
        for name, suite in suites.items()
    ]
    partly = any(each.passages is None for suite in suites.values() for each in suite.collections.values())
    notes = ["+: and more; not all sizes are known."] if partly else []
    notes += ["benchmarco suites NAME lists the collections of one.", "data.suite: NAME runs it."]
    return Table(counted(len(suites), "suite"), columns, rows, notes)


def suite_table(name: str, suite: Suite) -> Table:
    """A collection a row."""
    grouped = suite.counted_as != len(suite.collections)
    columns = [Column("collection"), *_SIZES[1:], Column("measure"), Column("license")]
    columns += [Column("counts with")] if grouped else []
    columns += [Column("repository", from_width=WIDE), Column("revision", from_width=WIDE)]

    rows = []
    for collection, each in suite.collections.items():
        data, group = each.data, [each.group or ""] if grouped else []
        known = [suite.measure_of(collection) or "", suite.license_of(collection) or ""]
        where = [getattr(data, "path", ""), (getattr(data, "revision", None) or "newest")[:12]]
        rows.append([collection, _number(each.passages), _number(each.queries), *known, *group, *where])
    title = f"{name}: {suite.description}"
    notes = [f"The mean is over {suite.counted_as:,}: collections that count with others are one."]
    return Table(title, columns, rows, notes if grouped else [])


def _total_of(suite: Suite, part: Literal["passages", "queries"]) -> str:
    whole = all(getattr(each, part) is not None for each in suite.collections.values())
    return Cell(f"{suite.total(part):,}{'' if whole else '+'}", suite.total(part))


def _number(value: int | None) -> str:
    return "" if value is None else Cell(f"{value:,}", value)
