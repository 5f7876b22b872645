"""What is done to a part, by whichever engine? Texts are encoded, or vectors searched, into a file."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config import SearchConfig
from pipeline.core.progress import Bar
from pipeline.core.records import Array, Ranking, Texts
from pipeline.data.storage import open_texts
from pipeline.encoders import Encoder, Role, Usage
from pipeline.engines import Job, Part, Piece
from pipeline.storage import vector_shards, whole_files
from pipeline.storage.artifacts import Artifact, entry_of

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.search.similarity import Metric


class Tally:
    """Counts what a bar is told of, and tells another.

    Args:
        bar: The other; None where nobody looks.
    """

    def __init__(self, bar: Bar | None) -> None:
        self.bar, self.done = bar, 0

    def update(self, n: int = 1) -> None:
        """See `pipeline.core.progress.Bar`."""
        self.done += n
        if self.bar:
            self.bar.update(n)


def perform(job: Job, encoder: Encoder, part: Part, folder: Path, node: str, bar: Bar | None = None) -> Piece:
    """Do a job to one part and leave the result in a file of its own."""
    tally, path = Tally(bar), folder / uuid.uuid4().hex
    facts = job.do(encoder, part, path, tally)
    whole_files.flush(path)
    return Piece(part, path, entry_of(path), tally.done, facts, node)


def save(path: Path, array: Array) -> None:
    """Write an array under just this name."""
    with whole_files.disk_errors_named(path), open(path, "wb") as file:
        np.save(file, array, allow_pickle=False)


@dataclass(frozen=True)
class Encode:
    """Turns texts into vectors, float32 or float16 [rows, dimension]; its facts are their `Usage`.

    Attributes:
        texts: The Arrow file of all texts, alone.
        role: What they are encoded as.
        normalized: Whether every vector must have length 1.
        stored: The number format their shard keeps them in.
    """

    texts: Artifact
    role: Role
    normalized: bool
    stored: vector_shards.Precision

    def do(self, encoder: Encoder, part: Part, path: Path, bar: Bar) -> Usage:
        """See `pipeline.engines.Job`.

        Raises:
            InputError: See `check_vectors` and `to_stored_precision` of `pipeline.storage.vector_shards`.
        """
        start, stop = part
        texts, usage = only_texts(self.texts), Usage()
        made = encoder.encode(texts, range(start, stop), self.role, usage, bar)
        vector_shards.check_vectors(made, texts.ids.slice(start, stop - start).to_pylist(), self.normalized)
        save(path, vector_shards.to_stored_precision(made, start, self.stored))
        return usage


HIT = np.dtype([("passage", "<i8"), ("score", "<f4")])
"""How a part's ranking lies in its file."""


@dataclass(frozen=True)
class Search:
    """Finds the best passages of each query among some of the stored vectors, exactly: `HIT` [queries, hits].

    Attributes:
        passages: The passages' vectors.
        queries: The queries' vectors.
        corpus: The Arrow file of the passages, alone; their ids decide between equal scores.
        metric: What a score is.
        config: The search section.
    """

    passages: Artifact
    queries: Artifact
    corpus: Artifact
    metric: Metric
    config: SearchConfig

    def do(self, encoder: Encoder, part: Part, path: Path, bar: Bar) -> None:
        """See `pipeline.engines.Job`. A part is some passages."""
        from pipeline.search import exact

        config = self.config
        found = exact.exact_search(
            vector_shards.open_rows(self.passages, *part),
            vector_shards.read_all_rows(self.queries),
            config.top_k,
            only_texts(self.corpus).ids,
            self.metric,
            bar,
            memory_mb=config.memory_mb,
            first_row=part[0],
        )
        save_hits(path, found)


def merge(best: Ranking, piece: Piece, top_k: int, ids: pa.ChunkedArray) -> Ranking:
    """The best passages of each query, of those found before and those of one more part.

    Args:
        best: Of the parts before.
        piece: The part, a file of `HIT` [queries, hits].
        top_k: Hits kept for each query.
        ids: Arrow strings, the ids of the collection's passages; they decide between equal scores.
    """
    from pipeline.search import exact

    hits = np.load(piece.path, mmap_mode="r", allow_pickle=False)
    found = Ranking(hits["passage"], hits["score"])
    return exact.merge_rankings([best, found], top_k, ids)


def nothing_found(queries: int) -> Ranking:
    """What to `merge` the first part with."""
    return Ranking(np.empty((queries, 0), np.int64), np.empty((queries, 0), np.float32))


def save_hits(path: Path, found: Ranking) -> None:
    """Write what was found in a part: `HIT` [queries, hits]."""
    hits = np.empty(found.passages.shape, HIT)
    hits["passage"], hits["score"] = found.passages, found.scores
    save(path, hits)


def only_texts(artifact: Artifact) -> Texts:
    """The texts of an artifact of one file."""
    (name,) = artifact.files
    return open_texts(artifact.path(name))
