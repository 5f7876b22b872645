"""The scores of the pairs of a ranking: those that the cache has, and the others computed by an engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from pipeline.core.arrow import from_numpy
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float32, Int64
from pipeline.encoders import Usage
from pipeline.engines import Part, jobs
from pipeline.rerankers.score_store import ScoreStore, UInt64, hash_pairs, hash_texts
from pipeline.retrievers.stage import Context
from pipeline.retrievers.vector_search import counted_parts

SHARD_PAIRS = 4096  # pairs scored at once, the most that an interrupted run loses for each worker
CHUNK = 4096  # texts read at once to be hashed


@dataclass(frozen=True)
class Pairs:
    """Pairs of a query and a passage, by their rows in a collection, int64 [pairs] each."""

    collection: Collection
    queries: Int64
    passages: Int64

    def __len__(self) -> int:
        return len(self.queries)

    def texts(self, rows: Int64) -> list[tuple[str, str]]:
        """The texts of some pairs."""
        queries = _texts(self.collection.queries.texts, self.queries[rows])
        return list(zip(queries, _texts(self.collection.passages.texts, self.passages[rows]), strict=True))

    def hashes(self) -> UInt64:
        """uint64 [pairs, 2]: what each pair is known by; every text is read once."""
        queries = _hashes(self.collection.queries.texts, self.queries)
        return hash_pairs(queries, _hashes(self.collection.passages.texts, self.passages))


def score_pairs(pairs: Pairs, kept: ScoreStore, context: Context) -> Float32:
    """The score of each pair, float32 [pairs]; new ones are added to the store part by part.

    The stage's meter notes how many were found and how many scored; pairs of equal texts are scored once.
    """
    hashes = pairs.hashes()
    scores = kept.find(hashes)
    missing = np.flatnonzero(np.isnan(scores))
    _, first, same = np.unique(hashes[missing], axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # as they come in the ranking: parts then hold few queries
    todo = missing[first[order]]
    spans = [(start, min(start + SHARD_PAIRS, len(todo))) for start in range(0, len(todo), SHARD_PAIRS)]
    parts = [Part(*span, partial(_read, pairs, todo[slice(*span)])) for span in spans]
    usage = Usage()
    found = np.empty(len(todo), np.float32)
    if parts:
        context.engine.load(len(parts))
    with context.progress("rerank", len(todo), "pairs") as bar, context.meter.working():
        for done in counted_parts(context.engine, context.meter, jobs.score, parts, bar) if parts else ():
            span = slice(done.part.start, done.part.stop)
            found[span], cost = done.outputs
            _check(found[span])
            kept.add(hashes[todo[span]], found[span])
            usage.add(cost)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    scores[missing] = found[place[same.reshape(-1)]]
    context.meter.count(len(pairs), worked=len(todo))
    context.meter.note("pairs", {"found": len(pairs) - len(todo), "scored": len(todo)})
    if parts:
        context.meter.note("encoding", usage.figures())
    return scores


def _check(scores: Float32) -> None:
    """Refuse scores that are no numbers, as from weights that are damaged or too large for fp16."""
    wrong = int((~np.isfinite(scores)).sum())
    if wrong:
        raise InputError(
            f"rerank: {wrong:,} of {len(scores):,} scores are NaN or infinite",
            fix="check the model's weights, or set rerank.precision to fp32",
        )


def _read(pairs: Pairs, rows: Int64) -> list[tuple[str, str]]:
    return pairs.texts(rows)


def _hashes(column: pa.ChunkedArray, rows: Int64) -> UInt64:
    """uint64 [rows, 2]: the hash of the text in each row of a column, read a few at a time."""
    different, places = np.unique(rows, return_inverse=True)
    parts = [
        hash_texts(_texts(column, different[start : start + CHUNK]))
        for start in range(0, len(different), CHUNK)
    ]
    return np.concatenate([np.empty((0, 2), np.uint64), *parts])[places]


def _texts(column: pa.ChunkedArray, rows: Int64) -> list[str]:
    chosen: list[str] = column.take(from_numpy(rows)).to_pylist()
    return chosen
