"""Tables of a plan and of the shipped suites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pipeline.core.display import BYTES, counted, figure
from pipeline.core.table import Cell, Column, FilledColumn, Table, right, table_of

if TYPE_CHECKING:
    from pipeline.config.suites import Suite
    from pipeline.run.estimate import RunEstimate, StageEstimate
    from pipeline.run.forecast import Forecast

WIDE = 140
"""A terminal of fewer characters shows less of each collection."""
FIGURES = [right(name) for name in ("time", "memory", "disk")]


def plan_table(plan: Forecast) -> Table:
    """A stage a row: whether its artifact is in the cache, its key, and what it takes; the rest as notes."""
    stages = plan.estimate.stages if plan.estimate else {}
    roles = [row["stage"] for row in plan.stages] or [*stages]
    estimates = [stages.get(role) for role in roles]
    takes = [_figures(stage) if stage else [""] * len(FIGURES) for stage in estimates]
    bytes_per_passage = [(stage.bytes_per_passage or None) if stage else None for stage in estimates]
    columns: list[FilledColumn] = [
        (Column("stage"), roles),
        (Column("artifact"), ["cached" if row["exists"] else "not cached" for row in plan.stages]),
        (Column("key"), [row["key"][:12] for row in plan.stages]),
        *zip(FIGURES, zip(*takes, strict=True), strict=False),
        (right(BYTES, form=",.0f"), bytes_per_passage),
    ]
    notes = [
        f"model {model['name']}: backend {model['backend']}, {model['precision']} (chosen by auto)."
        for model in plan.models
        if model["auto"]
    ]
    for model in plan.settings:  # how much it reads of a text, and where that is set
        tokens = {name: used for name, used in model["settings"].items() if name.startswith("tokens ")}
        lengths = [f"{name} {used['value']} ({used['source']})" for name, used in tokens.items()]
        notes.append(f"model {model['name']}: {', '.join(lengths)}.")
    if plan.unknown:
        notes.append(f"To be fetched: {plan.unknown}")
    elif plan.fetch:
        where = " and ".join(plan.repositories)
        notes.append(f"To be fetched: {counted(len(plan.fetch), 'file')} of {where}, {_fetched(plan)}.")
    notes += _totals(plan.estimate) if plan.estimate and stages else []
    if plan.passages is None and plan.stages:
        notes.append("--passages N estimates time, memory and disk for N passages.")
    title = plan.name if plan.stages else f"{plan.name}: {counted(plan.passages or 0, 'passage')}"
    return table_of(title, columns, notes)


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
    if lacking := estimate.obstacle:
        notes.append(f"Does not fit: {lacking.found}. Fits: {lacking.allowed}. To change: {lacking.fix}.")
    return notes


def forecast_table(plans: Sequence[Forecast]) -> Table:
    """A benchmark a row, and all together."""
    from pipeline.run.estimate import shared_total

    columns = [Column("name"), Column("cached stages", "right"), Column("to fetch", "right")]
    columns += [right("passages"), *FIGURES, Column("time without"), Column("fits")]
    rows = []
    for plan in plans:
        known = plan.estimate
        done = f"{sum(row['exists'] for row in plan.stages)} of {len(plan.stages)}" if plan.stages else ""
        takes = _figures(known.total) if known else [""] * len(FIGURES)
        rest = [", ".join(known.unknown), "no" if known.obstacle else "yes"] if known else ["", ""]
        fetched = "?" if plan.unknown else _fetched(plan)
        rows.append((plan.name, done, fetched, figure(plan.passages, ","), *takes, *rest))
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
    listed = suites.values()
    columns: list[FilledColumn] = [
        (Column("suite", wrap="never"), suites),
        (right("collections", form=","), [len(suite.collections) for suite in listed]),
        (right("passages"), [_total_of(suite, "passages") for suite in listed]),
        (right("queries"), [_total_of(suite, "queries") for suite in listed]),
        (Column("measure"), [suite.main_measure or "" for suite in listed]),
        (Column("license"), [suite.license or "" for suite in listed]),
        (Column("is"), [suite.description for suite in listed]),
    ]
    partly = any(each.passages is None for suite in suites.values() for each in suite.collections.values())
    notes = ["+: and more; not all sizes are known."] if partly else []
    notes += ["benchmarco suites NAME lists the collections of one.", "data.suite: NAME runs it."]
    return table_of(counted(len(suites), "suite"), columns, notes)


def suite_table(name: str, suite: Suite) -> Table:
    """A collection a row."""
    names, listed = list(suite.collections), suite.collections.values()
    revisions = [(getattr(each.data, "revision", None) or "newest")[:12] for each in listed]
    columns: list[FilledColumn] = [
        (Column("collection"), names),
        (right("passages", form=","), [each.passages for each in listed]),
        (right("queries", form=","), [each.queries for each in listed]),
        (Column("measure"), [suite.measure_of(name) or "" for name in names]),
        (Column("license"), [suite.license_of(name) or "" for name in names]),
        (Column("counts with"), [each.group or "" for each in listed]),
        (Column("repository", from_width=WIDE), [getattr(each.data, "path", "") for each in listed]),
        (Column("revision", from_width=WIDE), revisions),
    ]
    notes = []
    if suite.counted_as != len(names):
        notes.append(f"The mean is over {suite.counted_as:,}: collections that count with others are one.")
    return table_of(f"{name}: {suite.description}", columns, notes)


def _total_of(suite: Suite, part: Literal["passages", "queries"]) -> str:
    whole = all(getattr(each, part) is not None for each in suite.collections.values())
    return Cell(f"{suite.total(part):,}{'' if whole else '+'}", suite.total(part))
