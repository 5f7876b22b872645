"""What only some kinds of retrievers report: the records of their keys in `metrics.json`, and their tables.

They are apart from the kinds, so that reading and comparing results imports no model, index or search. To add
one, write its class here, and in `pipeline.results.records` a field of `Metrics` that is named as its key.
"""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from pipeline.core.display import counted, enumerated
from pipeline.core.result_records import (
    SPEED_OF_SEARCH,
    Cost,
    ReportSection,
    ResultFigures,
    columns_of,
)
from pipeline.core.table import Column, Table, table_of
from pipeline.retrievers.composition import (
    PairedChange,
)


class Chunking(ReportSection):
    """How passages were cut, and how they were ranked by their chunks; see docs/long-documents.md."""

    key = "chunks"
    heading = "Quality against chunk size"
    in_comparisons = True
    title = "chunks of passages"
    shown = (
        ("tokens", "tokens", ","),
        ("overlap", "overlap", ","),
        ("between", "boundary", ""),
        ("ranked by", "aggregate", ""),
        ("chunks", "chunks", ","),
    )
    note = "Queries per second are those of the search alone."
    plotted = "tokens"

    tokens: int
    overlap: int
    boundary: str
    aggregate: str
    chunks: int  # how many were made of all passages
    cut: int  # how many passages were cut in two or more

    @override
    def corrected(self, cost: Cost, passages: int) -> Cost:
        if cost.passages_per_second is None:
            return cost
        # the stages count chunks: passages per second are fewer
        return cost._replace(passages_per_second=cost.passages_per_second * (passages / self.chunks))

    def notes(self) -> list[str]:
        """How passages were cut and ranked."""
        ranked = {"max": "by its best one", "mean": "by their mean", "first": "by its first one"}
        return [
            f"{counted(self.cut, 'passage')} cut at {self.tokens:,} tokens: {counted(self.chunks, 'chunk')} "
            f"searched, and a passage is ranked {ranked[self.aggregate]}"
        ]


class AgainstExact(ReportSection):
    """What an approximate index loses: its share of the exact top hits by cutoff, and changes by measure."""

    key = "against_exact"

    overlap: dict[str, float]
    change: dict[str, PairedChange]

    def notes(self) -> list[str]:
        """The share of the exact top hits that the index finds."""
        shares = enumerated([f"{share:.1%} of the exact top {k}" for k, share in self.overlap.items()])
        return [f"The index finds {shares}"]


class ApproximateIndex(ReportSection):
    """An approximate index, and the parameters of its search."""

    key = "index"
    heading = "Against exact search"

    factory: str
    parameters: dict[str, int | float]  # of the search, such as nprobe

    @property
    def label(self) -> str:
        """The factory string and the parameters of the search."""
        return " ".join([self.factory, *(f"{name}={value}" for name, value in self.parameters.items())])

    @classmethod
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """What each index loses against exact search, and what it costs, a result a row."""
        losses = AgainstExact.of_each(results)
        indexes = {name: index for name, index in cls.of_each(results).items() if name in losses}
        exacts = [losses[name] for name in indexes]
        searches, builds = ([results[name].stage(stage) for name in indexes] for stage in ("search", "index"))
        costs = [
            *columns_of(searches, [SPEED_OF_SEARCH]),
            *columns_of(builds, [("seconds to build", "seconds", ",.2f"), ("on disk", "bytes", "bytes")]),
        ]
        cutoffs = sorted({cutoff for exact in exacts for cutoff in exact.overlap}, key=int)
        overlaps = {f"overlap@{k}": [exact.overlap.get(k) for exact in exacts] for k in cutoffs}
        changed = dict.fromkeys(name for exact in exacts for name in exact.change)
        changes = {
            f"change of {n}": [e.change[n].cell() if n in e.change else None for e in exacts] for n in changed
        }
        losses_of_each = [(Column(name, "right"), cells) for name, cells in (overlaps | changes).items()]
        notes = [
            "Overlap is the share of the top hits of exact search that the index finds. A change is the mean "
            "minus that of exact search, with its 95% interval.",
            "Speed is that of the search alone, in batches, in the run that computed it.",
        ]
        plots = [(SPEED_OF_SEARCH[0], name) for name in (*list(overlaps)[:1], f"change of {measure}")]
        labels = (Column("index"), [index.label for index in indexes.values()])
        columns = [(Column("result"), indexes), labels, *losses_of_each, *costs]
        return [table_of("against exact search", columns, notes, plots)] if indexes else []


class Sparsity(ReportSection):
    """How sparse word weights are."""

    key = "sparsity"
    heading = "Words with a weight"
    title = "words with a weight"
    shown = (
        ("words a query", "query_words", ".4g"),
        ("words a passage", "passage_words", ".4g"),
        ("FLOPS", "flops", ".4g"),
    )
    note = (
        "FLOPS are the expected multiplications for the score of a query and a passage. Queries per second "
        "are those of the search alone."
    )

    query_words: float  # mean number of words of a query that have a weight
    passage_words: float
    flops: float  # see `pipeline.search.inverted_index.sparsity`
