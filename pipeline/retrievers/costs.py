"""What a result costs: its speed, and the bytes that a passage takes in its index."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from typing_extensions import override

from pipeline.core.display import BYTES
from pipeline.core.result_records import Cost, ReportSection, ResultFigures, StageRow
from pipeline.core.table import Table


class VectorsCost(ReportSection):
    """The form in which passages' vectors are searched, and what that takes."""

    key = "vectors"
    heading = "Quality against size"
    title = "forms of vectors"
    shown = (
        ("form", "form", ""),
        (BYTES, "bytes", ","),
        ("ids", "ids", ","),
        ("codebooks", "codebooks", "bytes"),
    )
    note = (
        "Bytes are those of a vector in the index, without its id in an inverted list. Codebooks do not grow "
        "with passages. Queries per second are those of the search alone."
    )
    plotted = BYTES

    dimension: int
    precision: str
    factory: str = "Flat"
    bytes: int  # of one vector in the index, links of a graph included
    ids: int = 0  # bytes of its number in an inverted list
    codebooks: int = 0  # bytes of centroids, rotations and ranges, however many vectors there are

    @property
    def form(self) -> str:
        """The number and the precision of its components, and the index where it has codes of its own."""
        index = "" if self.factory == "Flat" else f", {self.factory}"
        return f"{self.dimension} x {self.precision}{index}"

    @classmethod
    @override
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """None where all forms have one size."""
        sizes = {form.bytes for form in cls.of_each(results).values()}
        return super().tables(results, measure) if len(sizes) > 1 else []


def cost_of(rows: Sequence[StageRow], passages: int, vectors: VectorsCost | None) -> Cost:
    """What a retriever of one model costs, by the figures of its stages and the form of its vectors."""
    stages = {row.stage: row for row in rows}
    speeds = []
    for first, then in (("passages", "index"), ("queries", "search")):
        # one stage after the other; the second may not have been needed
        timed = [stages[name] for name in (first, then) if name in stages]
        rates = [row.items_per_second for row in timed if row.stage == first or row.seconds is not None]
        # a run that finished what others began, and found nothing left to do, timed nothing
        speeds.append(add_times(rates) if first in stages else None)
    sizes = [stages[name].bytes for name in ("index", "passages") if name in stages]
    size = next(filter(None, sizes), None)
    each = size / passages if size else None
    if vectors:
        count = (stages["passages"].items if "passages" in stages else 0) or passages  # maybe of chunks
        size = count * (vectors.bytes + vectors.ids) + vectors.codebooks
        each = count * vectors.bytes / passages
    seconds = [row.seconds for row in rows if row.seconds is not None]
    return Cost(speeds[0], speeds[1], size, each, sum(seconds) if seconds else None)


def add_times(rates: Collection[float | None]) -> float | None:
    """Items per second of steps that each item goes through in turn; None where one is not known."""
    return 1 / sum(1 / rate for rate in rates if rate) if rates and all(rates) else None
