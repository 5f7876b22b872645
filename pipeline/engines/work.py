"""What is done to a part, by whichever engine? Texts are encoded, or vectors searched, into a file."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline import disk, vectors
from pipeline.artifacts import Artifact, entry_of
from pipeline.config import SearchConfig
from pipeline.data.storage import open_texts
from pipeline.encoders import Encoder, Role, Usage
from pipeline.engines import Job, Part, Piece
from pipeline.progress import Bar
from pipeline.records import Array, Ranking

if TYPE_CHECKING:
    from pipeline.search.scores import Metric


class Tally:
    """Counts what a bar is told of, and tells another.

    Args:
        bar: The other; None where nobody looks.
    """

    def __init__(self, bar: Bar | None) -> None:
        self.bar, self.done = bar, 0

    def update(self, n: int = 1) -> None:
        """See `pipeline.progress.Bar`."""
        self.done += n
        if self.bar:
            self.bar.update(n)


def perform(job: Job, encoder: Encoder, part: Part, folder: Path, node: str, bar: Bar | None = None) -> Piece:
    """Do a job to one part and leave the result in a file of its own."""
    tally = Tally(bar)
    array, facts = job.do(encoder, part, tally)
    path = folder / f"{uuid.uuid4().hex}.npy"
    with disk.refusals_named(path):
        with open(path, "wb") as file:
            np.save(file, array, allow_pickle=False)
        disk.flush(path)
    return Piece(part, path, entry_of(path), tally.done, facts, node)


@dataclass(frozen=True)
class Encode:
    """Turns texts into vectors; its facts are their `Usage`.

    Attributes:
        texts: The Arrow file of all texts.
        role: What they are encoded as.
        normalized: Whether every vector must have length 1.
        stored: The number format their shard keeps them in.
    """

    texts: Path
    role: Role
    normalized: bool
    stored: vectors.Precision

    def do(self, encoder: Encoder, part: Part, bar: Bar) -> tuple[Array, Usage]:
        """See `pipeline.engines.Job`; float32 or float16 [rows, dimension].

        Raises:
            InputError: See `pipeline.vectors.check` and `pipeline.vectors.stored`.
        """
        start, stop = part
        texts, usage = open_texts(self.texts), Usage()
        made = encoder.encode(texts, range(start, stop), self.role, usage, bar)
        vectors.check(made, texts.ids.slice(start, stop - start).to_pylist(), self.normalized)
        return vectors.stored(made, start, self.stored), usage


HIT = np.dtype([("passage", "<i8"), ("score", "<f4")])
"""How a part's ranking lies in its file."""


@dataclass(frozen=True)
class Search:
    """Finds the best passages of each query among some of the stored vectors, exactly.

    Attributes:
        passages: The passages' vectors.
        queries: The queries' vectors.
        corpus: The Arrow file of the passages, whose ids decide between equal scores.
        metric: What a score is.
        config: The search section.
    """

    passages: Artifact
    queries: Artifact
    corpus: Path
    metric: Metric
    config: SearchConfig

    def do(self, encoder: Encoder, part: Part, bar: Bar) -> tuple[Array, None]:
        """See `pipeline.engines.Job`; `HIT` [queries, hits]. A part is some passages."""
        from pipeline.search import exact

        config, queries = self.config, vectors.open_embeddings(self.queries)
        found = exact.best(
            vectors.among(vectors.open_embeddings(self.passages), *part),
            vectors.read(queries, 0, len(queries)),
            config.top_k,
            open_texts(self.corpus).ids,
            self.metric,
            bar,
            memory_mb=config.memory_mb,
            first_row=part[0],
        )
        hits = np.empty(found.passages.shape, HIT)
        hits["passage"], hits["score"] = found.passages, found.scores
        return hits, None

    def merge(self, pieces: Iterable[Piece]) -> Ranking:
        """The best passages of all parts: of each but one ranking is in memory at a time."""
        from pipeline.search import exact

        ids, best = open_texts(self.corpus).ids, None
        for piece in pieces:
            hits = np.load(piece.path, mmap_mode="r", allow_pickle=False)
            found = Ranking(hits["passage"], hits["score"])
            best = exact.merge([best, found], self.config.top_k, ids) if best else found
        if best is None:
            raise ValueError("no parts")
        return best
