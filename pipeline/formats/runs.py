"""TREC runs, read and written by columns.

    qid Q0 docid rank score tag       any ASCII white space between the fields

Lines that are blank or begin with `#` are skipped; a file may be gzip data. Ids are opaque UTF-8. The rank is
not read: as in trec_eval, the score alone orders a run (`pipeline.core.order`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.installation import DISTRIBUTION
from pipeline.core.records import Float64, Int32, Int64, Ranking, Scores, UInt64, from_numpy
from pipeline.formats.columns import (
    Form,
    data_lines,
    fingerprints,
    read_columns,
    repeated_pairs,
    string_buffers,
)
from pipeline.formats.texts import ID_BYTES, Block, read_blocks, refuse_unfit_ids

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_LINES = 1 << 18  # written at once
PADDED_CELLS = 1 << 20  # of rows that are laid out together, whatever share of them is padding
FEW_LINES, MANY_LINES = 3, 1000  # of which swapped columns are told
_PLAIN = bytes(range(33, 127)) + b" \t\n\r\v\f"  # characters of which every id is fit


RUN = Form(("query", "Q0", "document", "rank", "score", "tag"), "score", "a number")


@dataclass(frozen=True)
class Run:
    """The lines of a run, in the file's order."""

    query_ids: pa.Array  # Arrow strings [queries], in order of first appearance
    queries: Int32  # int32 [lines], row in `query_ids`
    documents: pa.ChunkedArray  # Arrow strings [lines]; each document once for a query
    scores: Float64  # float64 [lines]


def read_run(path: Path | str) -> Run:
    """Read a run; one with a malformed line, or with a duplicate document for a query, is refused."""
    import pyarrow as pa

    parts = _read_parts(path)
    if not parts:
        allowed = f"lines of {' '.join(RUN.columns)}"
        raise InputError(f"{path}: has no line of a run", allowed=allowed, fix="check what wrote this file")
    of_parts, documents, *others = zip(*parts, strict=True)
    queries, documents = pa.chunked_array(of_parts).combine_chunks(), pa.chunked_array(documents)
    rows, (scores, numbers, prints) = queries.indices.to_numpy(), map(np.concatenate, others)
    _refuse_swapped(path, rows, scores)
    earlier, later = repeated_pairs(rows, documents, prints)
    if later.size:
        query, document = queries[int(later[0])], documents[int(later[0])]
        raise InputError(
            f"{path}, line {numbers[later[0]]}: duplicate document '{document}' for query '{query}', "
            f"first on line {numbers[earlier[0]]}",
            allowed="each document once for a query",
            fix="remove one of the two lines",
        )
    return Run(queries.dictionary, rows, documents, scores)


_Part: TypeAlias = "tuple[pa.DictionaryArray, pa.Array, Float64, Int64, UInt64]"
"""Of the lines of a block: queries, documents, scores, numbers of lines, and fingerprints of documents."""


def _read_parts(path: Path | str) -> list[_Part]:
    """Parse a file on all cores, a block at a time."""
    workers = machine.cores()
    waiting: deque[Future[_Part | None]] = deque()
    parts = []
    with ThreadPoolExecutor(workers) as pool:  # Arrow and NumPy work outside Python's lock
        for block in read_blocks(path):
            waiting.append(pool.submit(_parse, block))
            if len(waiting) > 2 * workers:  # blocks in memory
                parts.append(waiting.popleft().result())
        parts += [each.result() for each in waiting]
    return [part for part in parts if part]


def _parse(block: Block) -> _Part | None:
    """The lines of a block, whose ids are checked; None if there are only comments and blank lines."""
    import pyarrow.compute as pc

    columns = read_columns(block, RUN)
    if columns is None:
        return None
    documents = columns.documents.combine_chunks()
    lengths = [pc.max(pc.binary_length(ids)).as_py() for ids in (columns.queries.dictionary, documents)]
    if max(lengths) > ID_BYTES or block.data.translate(None, _PLAIN):  # few files need the slow test
        for ids, what in ((columns.queries.cast("string"), "query"), (documents, "passage")):
            refuse_unfit_ids(ids, what, lambda row: f"{block.path}, line {columns.numbers[row]}")
    return columns.queries, documents, columns.values, columns.numbers, fingerprints(documents)


def _refuse_swapped(path: Path | str, queries: Int32, scores: Float64) -> None:
    """Refuse a run whose first query has ranks as scores, and no ranks in their column."""
    scores = scores[:MANY_LINES][queries[:MANY_LINES] == 0]
    if len(scores) < FEW_LINES or not any(
        (scores == np.arange(first, len(scores) + first)).all() for first in (0, 1)
    ):
        return
    lines = (fields for block in read_blocks(path) for _, fields in data_lines(block))
    ranks = [fields[RUN.columns.index("rank")] for fields in islice(lines, FEW_LINES)]
    if not all(rank.isdigit() for rank in ranks):
        raise InputError(
            f"{path}: the scores of the first query are its ranks, and its ranks {', '.join(ranks)}",
            allowed=f"lines of {' '.join(RUN.columns)}",
            fix="swap the columns of ranks and scores",
        )


def write_run(
    file: BinaryIO,
    query_ids: pa.ChunkedArray,
    passage_ids: pa.ChunkedArray,
    ranking: Ranking,
    tag: str = DISTRIBUTION,
) -> None:
    """Write `qid Q0 docid rank score tag` lines, ranks from 1, queries in their order.

    The ranking is ordered by the tie rule; its pads are left out. Scores have as many digits as tell any two
    float32 apart, so reading them back keeps every tie. The tag is a single word.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not tag or tag.split() != [tag]:
        raise InputError(f"run tag {tag!r}", allowed="one word without white space")
    k = ranking.passages.shape[1]
    ranks = pc.cast(from_numpy(np.arange(1, k + 1)), pa.string())
    rows = max(BLOCK_LINES // max(k, 1), 1)
    for start in range(0, len(ranking.passages), rows):
        block = ranking.passages[start : start + rows]
        row, column = np.nonzero(block >= 0)
        lines = pc.binary_join_element_wise(
            query_ids.take(from_numpy(row + start)).cast(pa.string()),
            "Q0",
            passage_ids.take(from_numpy(block[row, column])).cast(pa.string()),
            ranks.take(from_numpy(column)),
            pc.cast(from_numpy(ranking.scores[start : start + rows][row, column]), pa.string()),
            f"{tag}\n",
            " ",
        )
        for chunk in lines.chunks:
            offsets, text = string_buffers(chunk)
            file.write(text[offsets[0] : offsets[-1]].data)


@dataclass(frozen=True)
class RunRows:
    """A run's lines, query by query."""

    run: Run
    lines: Int64  # int64 [lines], numbers of its lines, query by query, in the order of the file
    ends: Int64  # int64 [queries + 1], where each query's lines begin in `lines`, and the end

    @classmethod
    def of(cls, run: Run, row: Int64, n_queries: int) -> RunRows:
        """The rows of `n_queries` queries.

        `row` is int64 [run queries], the row of each query of the run; lines of row `n_queries` are left out.
        """
        # in the smallest type that holds the row numbers: NumPy sorts up to 16 bits in one pass
        rows = row.astype(np.min_scalar_type(n_queries))[run.queries]
        lines = np.argsort(rows, kind="stable")
        ends = np.searchsorted(rows, np.arange(n_queries + 1), sorter=lines)
        return cls(run, lines[: ends[-1]], ends)

    @property
    def counts(self) -> Int64:
        """int64 [queries]: how many lines each query has."""
        return np.diff(self.ends)

    def parts(self) -> Iterator[tuple[Int64, Int64, Scores]]:
        """Rows of queries of like lengths, their lines and scores, as `laid_out` gives them."""
        for rows in like_lengths([self.counts]):
            yield rows, *self.laid_out(rows)

    def laid_out(self, rows: Int64) -> tuple[Int64, Scores]:
        """The lines of some queries, int64 [rows, most lines], padded with -1; scores, padded with -inf."""
        starts, counts = self.ends[rows], self.counts[rows]
        shape = (len(rows), int(counts.max(initial=0)))
        if len(rows) == len(self.ends) - 1 and (counts == shape[1]).all():
            lines = self.lines.reshape(shape)
            return lines, self.run.scores[lines]
        ranks = np.arange(shape[1])
        filled = ranks < counts[:, None]
        lines, scores = np.full(shape, -1), np.full(shape, -np.inf, self.run.scores.dtype)
        lines[filled] = self.lines[(starts[:, None] + ranks)[filled]]
        scores[filled] = self.run.scores[lines[filled]]
        return lines, scores


def like_lengths(counts: Sequence[Int64]) -> list[Int64]:
    """Rows of queries to lay out together: all, or those of like numbers of lines.

    Padding takes as much memory as the lines do, at most; or little.

    Args:
        counts: For each run int64 [queries], the lines of each query.
    """
    longest = np.max(counts, axis=0)
    rows, cells = np.arange(len(longest)), len(counts) * len(longest) * int(longest.max(initial=0))
    if cells <= max(2 * int(np.sum(counts)), PADDED_CELLS):
        return [rows]
    _, doublings = np.frexp(np.maximum(longest, 1) - 0.5)  # the number of doublings of 1 that it takes
    return [rows[doublings == number] for number in np.unique(doublings)]
