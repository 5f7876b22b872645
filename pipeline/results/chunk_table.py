"""The table of results whose passages were cut: the size of chunks, what they cost, and what they bring."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.core.display import decimal, rate, rounded, size
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.results.records import Metrics


def chunk_table(measure: str, names: Sequence[str], records: Sequence[Metrics]) -> Table | None:
    """A result a row; None if no result's passages were cut. Of whole passages, these are counted."""
    from pipeline.retrievers.texts import Chunking

    cuts = [record.section(Chunking) for record in records]
    if not any(cuts):
        return None
    sizes = [record.stage("index").bytes or record.stage("passages").bytes for record in records]
    seconds = [record.stage("passages").seconds for record in records]
    speeds = [record.stage("search").items_per_second for record in records]
    means = [record.metrics[measure] for record in records]
    counts = [
        record.passages if cut is None else cut.chunks for cut, record in zip(cuts, records, strict=True)
    ]
    columns: list[FilledColumn] = [
        (Column("result"), list(names)),
        (
            Column("tokens", "right"),
            [Cell(f"{cut.tokens:,}", cut.tokens) if cut else Cell("whole", None) for cut in cuts],
        ),
        (
            Column("overlap", "right"),
            [Cell(f"{cut.overlap:,}", cut.overlap) if cut else Cell("", None) for cut in cuts],
        ),
        (Column("between"), [f"{cut.boundary}s" if cut else "" for cut in cuts]),
        (Column("ranked by"), [cut.aggregate if cut else "" for cut in cuts]),
        (Column("chunks", "right"), [Cell(f"{count:,}", count) for count in counts]),
        (Column("size", "right"), [Cell(size(count), count) for count in sizes]),
        (Column("s to encode", "right"), [Cell(decimal(value, 1), value) for value in seconds]),
        (Column("queries/s", "right"), [Cell(rate(value), value) for value in speeds]),
        (Column(measure, "right"), [Cell(rounded(mean), mean) for mean in means]),
    ]
    return table_of("chunks of passages", columns, [NOTE])


NOTE = (
    "A size is that of what is searched. Texts that were encoded before are copied, which takes no time. "
    "Queries per second are those of the search alone."
)
