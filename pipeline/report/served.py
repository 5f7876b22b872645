"""Results of served models: what their servers were asked, and what that took."""

from __future__ import annotations

from pipeline.core.display import counted, decimal, rate, rounded, signed
from pipeline.core.json_record import EncodingUsage, StageRow
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.results.records import Metrics
from pipeline.retrievers.parity import Parity


def served_tables(record: Metrics) -> list[Table]:
    """What servers were asked, if any were, and how what they gave compares with the model run here."""
    rows = [(row, row.encoding) for row in record.all_stages if row.encoding and row.encoding.requests]
    requests = [_requests(record.name, rows)] if rows else []
    parity = record.section(Parity)
    return [*requests, *([_parity(record.name, parity)] if parity else [])]


def _parity(name: str, parity: Parity) -> Table:
    """A measure a row, on a sample: its mean by the model that runs here and by the served one."""
    changes = list(parity.change.values())
    columns: list[FilledColumn] = [
        (Column("measure"), list(parity.change)),
        (Column("run here", "right"), [Cell(rounded(each.exact), each.exact) for each in changes]),
        (
            Column("served", "right"),
            [Cell(rounded(each.exact + each.difference), each.exact + each.difference) for each in changes],
        ),
        (Column("difference", "right"), [Cell(signed(each.difference), each.difference) for each in changes]),
    ]
    shares = ", ".join(f"{share:.1%} of the top {cutoff}" for cutoff, share in parity.overlap.items())
    notes = [
        f"Of {parity.passages:,} passages, ranked for {counted(parity.queries, 'query', 'queries')}: vectors "
        f"of the server beside those of {parity.name}, run here by {parity.backend}.",
        f"The cosine of a text's two vectors is {parity.lowest_cosine:.6f} at the lowest and "
        f"{parity.mean_cosine:.6f} in the mean. Hits in common: {shares}.",
    ]
    return table_of(f"{name}: is what is served what was trained?", columns, notes)


def _requests(name: str, rows: list[tuple[StageRow, EncodingUsage]]) -> Table:
    """A stage a row: requests, tokens, price and speed, and how long a query takes alone."""
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
