"""The index of quantized vectors: the vectors themselves in int8 or as bits, and their exact search."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config import SearchConfig
from pipeline.core.progress import Bar
from pipeline.core.records import Array, Embeddings, Float32, Int64, Ranking
from pipeline.retrievers.ranking import save_ranking
from pipeline.retrievers.stage import Context, Facts, Inputs
from pipeline.storage import vector_forms, vector_shards
from pipeline.storage.artifacts import Artifact, Draft

if TYPE_CHECKING:
    from pipeline.search.documents import Documents
    from pipeline.search.quantized import QuantizedVectors

SHARD_ROWS = 1 << 18  # rows of a file
BLOCK = 1 << 13  # rows read at once
RANGES = "ranges.npy"


def build(precision: str, inputs: Inputs, draft: Draft, context: Context) -> Facts:
    """Quantize the passages' vectors; whole files of an interrupted run are kept."""
    embeddings: Embeddings = inputs["passages"]
    n = len(embeddings)
    missing = vector_shards.missing_ranges(n, SHARD_ROWS, draft.whole)
    todo = sum(stop - start for start, stop in missing)
    with context.progress("index", todo, "vectors") as bar, context.meter.working():
        ranges = _ranges(embeddings) if precision == "int8" else None
        if ranges is not None:
            draft.save_array(RANGES, ranges)
        for start, stop in missing:
            blocks = []
            for first in range(start, stop, BLOCK):
                last = min(first + BLOCK, stop)
                blocks.append(_quantized(vector_shards.read_rows(embeddings, first, last), ranges))
                vector_shards.release_memory(embeddings, first, last)
                bar.update(last - first)
            draft.save_array(vector_shards.shard_name(start, stop), np.concatenate(blocks))
    context.meter.count(n, worked=todo)
    return {"rows": n, "dimension": embeddings.dimension}


def _quantized(rows: Float32, ranges: Float32 | None) -> Array:
    if ranges is None:
        return vector_forms.quantize_binary(rows)
    return vector_forms.quantize_int8(rows, ranges)


def _ranges(embeddings: Embeddings) -> Float32:
    """float32 [2, dimension]: the least and the largest number of each dimension among all vectors."""
    lowest = np.full(embeddings.dimension, np.inf, np.float32)
    highest = -lowest
    for start in range(0, len(embeddings), BLOCK):
        stop = min(start + BLOCK, len(embeddings))
        rows = vector_shards.read_rows(embeddings, start, stop)
        np.minimum(lowest, rows.min(axis=0), out=lowest)
        np.maximum(highest, rows.max(axis=0), out=highest)
        vector_shards.release_memory(embeddings, start, stop)
    return np.stack([lowest, highest])


def open_vectors(artifact: Artifact) -> QuantizedVectors:
    """The quantized vectors of a finished artifact, memory-mapped."""
    from pipeline.search.quantized import QuantizedVectors

    stored = vector_shards.open_embeddings(artifact)
    ranges = np.array(artifact.array(RANGES)) if RANGES in artifact.files else None
    return QuantizedVectors(stored.shards, artifact.facts["dimension"], ranges)


def search(
    config: SearchConfig,
    documents_of: Callable[[Inputs], Documents | None],
    inputs: Inputs,
    draft: Draft,
    context: Context,
) -> Facts:
    """Search in this process; `documents_of` as of `vector_search.search_whole`."""
    from pipeline.search import exact
    from pipeline.search.documents import rank_by_search

    collection, queries = inputs["data"], inputs["queries"]
    vectors: QuantizedVectors = inputs["index"]
    ids, documents = collection.passages.ids, documents_of(inputs)
    count = len(ids) if documents is None else documents.chunks
    vector_shards.check_counts(len(vectors), vectors.dimension, count, queries)
    if vectors.ranges is None:  # what is compiled or imported first is not timed
        import faiss  # noqa: F401
    else:
        exact.prepare(queries, len(vectors))
    with context.progress("search", len(queries), "queries") as bar, context.meter.working():
        if documents is None:
            ranking = vectors.search(queries, config.top_k, config.rescore, ids, bar, config.memory_mb)
        else:
            chunk_ids = documents.chunk_ids

            def find(chosen: Int64, k: int, bar: Bar) -> Ranking:
                return vectors.search(queries[chosen], k, config.rescore, chunk_ids, bar, config.memory_mb)

            ranking = rank_by_search(find, len(queries), documents, config.top_k, ids, bar)
    context.meter.count(len(queries))
    return save_ranking(draft, collection, ranking)
