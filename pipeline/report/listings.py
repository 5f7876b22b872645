"""Tables of a plan, the shipped suites and a collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from rich.text import Text

from pipeline.core.display import counted, cut, figure
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
    rows = []
    for role in known or stages:
        takes = _figures(stages[role]) if role in stages else [""] * len(FIGURES)
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
    return Table(title, [*columns, *(FIGURES if stages else [])], rows, notes)


def _figures(stage: StageEstimate) -> list[str | Cell]:
    """The cells of `FIGURES`."""
    memory = None if stage.memory_mb is None else 1e6 * stage.memory_mb
    known = ((stage.seconds, "time"), (memory, "bytes"), (stage.disk_bytes, "bytes"))
    return ["?" if value is None else Cell(figure(value, form), value) for value, form in known]


def _totals(estimate: RunEstimate) -> list[str]:
    """What a run takes together, what that was measured by, and why it does not fit."""
    total, measured = estimate.total, estimate.measured
    more = f" and what {', '.join(estimate.unknown)} take" if estimate.unknown else ""
    time = figure(total.seconds, "time") + more if total.seconds is not None else "time unknown"
    memory, disk = 1e6 * (total.memory_mb or 0), figure(total.disk_bytes or 0, "bytes")
    notes = [f"Together about {time}; {figure(memory, 'bytes')} of memory, {disk} of disk."]
    if measured is None:
        notes.append("Time: not measured on this machine; --probe does it on a part of the built-in sample.")
    else:
        size = f"{counted(measured.passages, 'passage')}, {counted(measured.queries, 'query', 'queries')}"
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


EXAMPLE_LENGTH = 200  # characters
ALWAYS = ("passages", "judged queries", "judgments")
"""Counts that are shown even if they are 0."""
MISSING = {
    "passages": "judged passages that the corpus lacks (missing_passages: {handling})",
    "judgments": "judgments of these",
    "relevant": "judgments of these, grade 1 or higher",
    "queries": "judged queries without a text (left out)",
}


def collection_view(name: str, description: Facts, whole: bool = True) -> Iterator[Table | Text]:
    """Tables and examples of what `pipeline.data.describe` found; the main ones if not `whole`."""
    yield _counts(name, description, whole)
    yield _distributions(description, whole)
    for found in description.get("training_data", ()):
        yield from _training_data(found)
    if "audit" in description:
        yield from _audit(description["audit"], whole)
    length = EXAMPLE_LENGTH if whole else EXAMPLE_LENGTH // 2
    for example in description["examples"][: None if whole else 1]:
        yield Text(f"query {example['id']}: {cut(example['text'], length)}", style="bold")
        for judged in example["judged"]:
            yield Text(f"  grade {judged['grade']}  {judged['id']}: {cut(judged['text'], length)}")


def _audit(audited: Facts, whole: bool) -> Iterator[Table]:
    """Defects of a collection, and what equal passages with different grades do to each measure."""
    rows = [
        (defect["what"], f"{defect['count']:,}", f"{defect['of']:,}", ", ".join(defect["examples"]))
        for defect in audited["defects"]
        if whole or defect["count"]
    ]
    columns = [Column("defect"), Column("count", "right"), Column("of", "right"), Column("such as")]
    notes = [] if rows else ["No defect was found."]
    if rows and not whole:
        notes.append("Defects without a case are left out (-v).")
    yield Table("audit", columns, rows, notes)
    if audited["scores"]:
        columns = [Column("a perfect ranking scores"), Column("lowest", "right"), Column("highest", "right")]
        changes = [
            (change["measure"], f"{change['lowest']:.4f}", f"{change['perfect']:.4f}")
            for change in audited["scores"]
        ]
        queries = counted(audited["queries_with_differing_twins"], "query has", "queries have")
        judgments = counted(audited["judgments_changed"], "judgment")
        note = (
            "lowest: of equal passages, those of lower grades come first, as may happen by chance. "
            f"{queries} equal passages whose grades differ; --write FOLDER changes {judgments}."
        )
        yield Table("what equal passages with different grades do to scores", columns, changes, [note])


def _training_data(found: Facts) -> Iterator[Table | Text]:
    """How many texts occur in a file of training data, and some of them."""
    labels = {"queries": "queries", "passages": "passages", "relevant": "passages of grade 1 or higher"}
    rows = [(label, f"{found[key]:,}") for key, label in labels.items()]
    notes = [
        f"{counted(found['pairs'], 'query', 'queries')} of these, each with a passage of grade 1 or higher "
        "that is relevant to it. A text occurs in the file if one of the file has the same words in the same "
        "order."
    ]
    columns = [Column("in the file"), Column("count", "right")]
    yield Table(f"{found['file']}: {counted(found['texts'], 'text')}", columns, rows, notes)
    for example in found["examples"]:
        text = cut(example["text"], EXAMPLE_LENGTH)
        yield Text(f"{example['role']} {example['id']}: {text}", style="bold")


def _counts(name: str, description: Facts, whole: bool) -> Table:
    """Numbers of passages, queries and judgments, and of those that were dropped."""
    labels = {
        "passages": "passages",
        "titles": "passages with a title (joined as 'title text')",
        "empty_texts": "empty passages",
        "queries": "judged queries",
        "empty_queries": "empty queries",
        "judgments": "judgments",
        "unjudged_copies": "passages nobody judged, with the text of a relevant one",
        "queries_as_passages": "queries that are a passage",
    }
    rows = [(label, f"{description[key]:,}") for key, label in labels.items() if key in description]
    if found := description.get("slice"):
        rows.append(("slice: share of the corpus", f"{found['passages'] / found['of']:.2%}"))
        share = f"{found['judged'] / max(found['judged_of'], 1):.2%}"
        rows.append(("slice: share of the judged passages", share))
        for number, ranking in enumerate(found.get("pool", ()), start=1):
            label = f"slice: top {found['top']:,} of ranking {number}, {ranking.get('name', '')}"
            rows.append((f"{label} (chosen by no other)", f"{ranking['passages']:,} ({ranking['alone']:,})"))
    missing = description["missing"]
    for key, label in MISSING.items():
        rows.append((label.format(**missing), f"{missing[key]:,}"))
    for why, label in (("dropped", "dropped"), ("outside_slice", "outside the slice")):
        for reason, count in description[why].items():
            rows.append((f"{label}: {reason.replace('_', ' ')}", f"{count:,}"))
    shown = [row for row in rows if whole or row[1] != "0" or row[0] in ALWAYS]
    return Table(name, [Column("what"), Column("count", "right")], shown)


def _distributions(description: Facts, whole: bool) -> Table:
    """Judgments per query, and lengths of texts: in characters and tokens, or in one of these."""
    figures = ("min", "median", "mean", "p95", "max")
    judged = description["judgments_per_query"]
    rows = {"query: judgments": judged["all"]}
    if whole:
        rows |= {f"query: judgments of grade {grade}": each for grade, each in judged["grade"].items()}
    for role, lengths in description["lengths"].items():
        singular = {"passages": "passage", "queries": "query"}[role]
        texts = description[role]
        units = list(lengths.items())
        rows |= {
            f"{singular}: {unit}{_sample(each, texts)}": each
            for unit, each in (units if whole else units[-1:])
        }
    cells = [(label, *(f"{each[name]:,.5g}" for name in figures)) for label, each in rows.items()]
    columns = [Column("distribution"), *(Column(name, "right") for name in figures)]
    return Table("", columns, cells, list(_truncated(description["lengths"])))


def _truncated(lengths: Facts) -> Iterator[str]:
    """How much of the texts the model does not read."""
    from pipeline.retrievers.truncation import ADVICE, TruncatedTexts

    for role, of_role in lengths.items():
        counts = of_role.get("tokens", {}).get("truncation", {})
        if counts.get("cut"):
            yield f"{TruncatedTexts(**counts).note(role, ADVICE if role == 'passages' else '')}."


def _sample(lengths: Facts, texts: int) -> str:
    """What to add to the label of lengths that were counted in fewer texts than there are."""
    return f", of a sample of {lengths['counted']:,}" if lengths["counted"] < texts else ""
