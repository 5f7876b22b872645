"""Records that stages pass on: typed arrays without behaviour.

Between stages, a query or a passage is its row number; ids are strings only at the edges. Texts and ids
are Arrow columns, memory-mapped from the artifact that holds them, so a corpus may be larger than memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Scores = Array
"""Scores as float32, or as float64 where they come from a run file."""
BoolArray = npt.NDArray[np.bool_]
UInt8 = npt.NDArray[np.uint8]
UInt64 = npt.NDArray[np.uint64]
JsonObject: TypeAlias = dict[str, object]
"""A JSON object, whose values are of any type that JSON has."""
Facts: TypeAlias = dict[str, Any]
"""A JSON object that this package writes and reads, such as a part of a manifest."""
Role = Literal["passages", "queries"]
ROLES: tuple[Role, ...] = ("passages", "queries")
TextPair = tuple[str, str]
"""The texts of a query and a passage."""


@dataclass(frozen=True)
class Texts:
    """Passages or queries, in their collection's own order."""

    ids: pa.ChunkedArray  # Arrow string column [n], unique, no white space
    texts: pa.ChunkedArray  # Arrow string column [n]; a title is already joined (see `pipeline.data`)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Qrels:
    """Relevance judgments, one entry each, sorted by query then passage, each pair at most once."""

    queries: Int64  # int64 [j], row of the query
    # int64 [j], row of the passage. Rows that follow those of the corpus stand for passages that the corpus
    # lacks, and that nothing can retrieve (`Collection.missing_ids`).
    passages: Int64
    # int64 [j], or float64 [j] where one is not whole; below 1 is not relevant (see the measures' `rel=`).
    grades: Array


@dataclass(frozen=True)
class Collection:
    """The data of one benchmark: passages, queries and judgments."""

    passages: Texts  # the corpus
    # Those that are judged. With `data.missing_passages: drop`, some may have no judgment left.
    queries: Texts
    missing_ids: pa.ChunkedArray  # Arrow string column [m], ids of the judged passages that the corpus lacks
    qrels: Qrels  # the judgments. Passage row `len(passages) + i` is that of `missing_ids[i]`.
    facts: JsonObject  # what loading recorded: counts, titles, what was dropped and why

    @property
    def judged_ids(self) -> pa.ChunkedArray:
        """Arrow strings: the id of each passage row that `qrels` may hold."""
        import pyarrow as pa

        return pa.chunked_array([*self.passages.ids.chunks, *self.missing_ids.chunks], pa.string())


@dataclass(frozen=True)
class Chunks:
    """Parts of a collection's passages, in the order of the passages and of each one's text."""

    texts: Texts  # the chunks; a chunk's id is that of its passage, "#" and its number, from 0
    places: Int64  # int64 [2, chunks], the characters of its passage that a chunk begins with and ends before
    bounds: Int64  # int64 [passages + 1], the first chunk of each passage, and the end; each has one at least

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class VectorForm:
    """What is made of each stored vector when it is read; see `pipeline.storage.vector_shards`."""

    dimensions: int | None = None  # how many of the first dimensions are kept; None keeps all
    normalize: bool = False  # whether the vector is then scaled to length 1
    # Whether the stored vectors must have length 1, so that only cut ones are scaled.
    given_at_length_1: bool = False
    halves: bool = False  # whether numbers are then rounded to float16


AS_STORED = VectorForm()


@dataclass(frozen=True)
class Embeddings:
    """Vectors in their collection's order, in shards that stay on disk."""

    # float32, float16 or int8 [rows, stored dimension] each, memory-mapped; together they hold all rows, in
    # order. `pipeline.storage.vector_shards.read_rows` gives any of them as float32.
    shards: tuple[Array, ...]
    form: VectorForm = AS_STORED  # what is made of a vector when it is read

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    @cached_property
    def ends(self) -> list[int]:
        """The number of rows in each shard and all before it."""
        return list(accumulate(map(len, self.shards)))

    @property
    def dimension(self) -> int:
        """Number of dimensions of every vector, as it is read."""
        stored = int(self.shards[0].shape[1])
        return min(self.form.dimensions or stored, stored)


@dataclass(frozen=True)
class RaggedRows:
    """Rows of different lengths, the entries of all rows one after the other.

    A sparse row has an entry for each of its words, in ascending order of words: the columns are the words'
    numbers, int32 [entries], and their weights, float32 [entries]. A multi-vector row has one for each token:
    the column is the vectors, float32 or float16 [entries, dimension].
    """

    ends: Int64  # int64 [rows], where each row ends in the columns
    columns: tuple[Array, ...]  # arrays of equal length, one or more

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def entries(self) -> int:
        """The number of entries of all rows."""
        return len(self.columns[0])

    @property
    def lengths(self) -> Int64:
        """int64 [rows]: the number of entries of each row."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class Ranking:
    """The best k passages of each query."""

    passages: Int64  # int64 [queries, k], row of the passage at each rank; -1 pads a row with fewer hits
    # float32 or float64 [queries, k], never increasing along a row; -inf where `passages` is -1. Equal scores
    # are in descending order of passage id (`pipeline.core.order`).
    scores: Scores
    # int64 [queries, k], where chunks were searched: the best one of each passage; -1 for padding.
    chunks: Int64 | None = None

    def lengths(self) -> Int64:
        """int64 [queries]: the number of hits of each query."""
        lengths: Int64 = np.count_nonzero(self.passages >= 0, axis=1)
        return lengths


@dataclass(frozen=True)
class TokenEmbeddings:
    """A vector for each token of each text, in their collection's order."""

    vectors: Embeddings  # all token vectors, those of one text after those of the one before
    # int64 [texts], the row in `vectors` after the last one of each text; a text has one at least.
    ends: Int64

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def bounds(self) -> Int64:
        """int64 [texts + 1]: the first row of each text, and the end of all."""
        return np.concatenate([[0], self.ends])


def from_numpy(values: Array) -> pa.Array:
    """The numbers of a one-dimensional array as an Arrow array, which shares a contiguous array's memory.

    `pyarrow.array` does the same, but imports pandas when it is first called, which takes 0.3 s.
    """
    import pyarrow as pa

    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def take_texts(column: pa.ChunkedArray, rows: Int64) -> pa.ChunkedArray:
    """The texts (or ids) in the given rows of a column, int64 [n], in the order of `rows`.

    Arrow's own method joins all chunks first: it copies the whole column, and fails above 2 GiB.
    """
    import pyarrow as pa

    order = np.argsort(rows, kind="stable")
    ends = np.cumsum([len(chunk) for chunk in column.chunks], dtype=np.int64)
    wanted = np.split(rows[order], np.searchsorted(rows[order], ends[:-1]))
    parts = [
        chunk.take(from_numpy(some - (end - len(chunk))))
        for chunk, end, some in zip(column.chunks, ends, wanted, strict=False)
        if len(some)
    ]
    taken = pa.chunked_array(parts, column.type)
    return taken if (order[1:] > order[:-1]).all() else taken.take(from_numpy(np.argsort(order)))
