"""Indexes of vectors as artifacts, and their search: in this process, or part by part by an engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config import FLAT, Config, IndexConfig, RowSettings, SearchConfig
from pipeline.core.records import Embeddings, Float32, Ranking, UInt8
from pipeline.engines import engine as jobs
from pipeline.engines.base import Part, PartJob
from pipeline.retrievers import texts
from pipeline.retrievers.costs import VectorsCost
from pipeline.retrievers.retriever import Retriever
from pipeline.retrievers.stage import Context, Facts, Inputs
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Artifact, Draft

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.search.quantized import QuantizedVectors


INDEX = "index.faiss"
INDEX_SHARD = "index-{}.faiss"
"""The file of an index, and that of each shard of one that is cut, by its number."""


@dataclass(frozen=True)
class StoredIndex:
    """A finished index; nothing of it is read yet."""

    artifact: Artifact


def build_index(index: IndexConfig, inputs: Inputs, draft: Draft, context: Context) -> Facts:
    """Build the Faiss index of the passages' vectors; whole shards of an interrupted run are kept."""
    from pipeline.search import faiss_index
    from pipeline.search.faiss_library import faiss

    embeddings, meter = inputs["passages"], context.meter
    rows = meter.items = len(embeddings)
    label = "index" if index.factory == FLAT else "train and fill the index"
    if index.shards > 1:
        _build_shards(index, embeddings, draft, context, label)
    elif INDEX in draft.whole:
        meter.worked_on = 0
    else:
        with context.progress(label, rows, "vectors") as bar, meter.working():
            whole = faiss_index.build_index(embeddings, index.factory, index.metric, bar, seed=index.seed)
            with draft.file(INDEX) as path:
                faiss.write_index(whole, str(path))  # without a copy of its bytes in memory
        meter.notes["engine"] = {"kind": "local", "workers": 1, "parts": {"local": 1}}
    return {"rows": rows, "dimension": embeddings.dimension}


def _build_shards(
    index: IndexConfig, embeddings: Embeddings, draft: Draft, context: Context, label: str
) -> None:
    """Have an engine build the indexes of the parts that the vectors are cut into."""
    spans = vector_shards.split_evenly(len(embeddings), index.shards)
    names = {start: INDEX_SHARD.format(number) for number, (start, _) in enumerate(spans)}
    parts = [
        Part(start, stop, partial(vector_shards.rows_of, embeddings, start, stop))
        for start, stop in spans
        if names[start] not in draft.whole
    ]
    rows = context.meter.worked_on = sum(part.stop - part.start for part in parts)
    context.open_engine().start(len(parts))
    with context.progress(label, rows, "vectors") as bar, context.meter.working():
        for result in context.counted_parts(PartJob(partial(jobs.build_index, index)), parts, bar):
            with draft.file(names[result.part.start]) as path:
                result.outputs.tofile(path)


SHARD_ROWS = 1 << 18  # rows of a file
READ_ROWS = 1 << 13  # rows read at once
RANGES = "ranges.npy"


def build_quantized(precision: str, inputs: Inputs, draft: Draft, context: Context) -> Facts:
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
            for first in range(start, stop, READ_ROWS):
                last = min(first + READ_ROWS, stop)
                rows = vector_shards.read_rows(embeddings, first, last)
                if ranges is None:
                    blocks.append(vector_shards.quantize_binary(rows))
                else:
                    blocks.append(vector_shards.quantize_int8(rows, ranges))
                vector_shards.release_memory(embeddings, first, last)
                bar.update(last - first)
            draft.save_array(vector_shards.shard_name(start, stop), np.concatenate(blocks))
    context.meter.items, context.meter.worked_on = n, todo
    return {"rows": n, "dimension": embeddings.dimension}


def _ranges(embeddings: Embeddings) -> Float32:
    """float32 [2, dimension]: the least and the largest number of each dimension among all vectors."""
    lowest = np.full(embeddings.dimension, np.inf, np.float32)
    highest = -lowest
    for start in range(0, len(embeddings), READ_ROWS):
        stop = min(start + READ_ROWS, len(embeddings))
        rows = vector_shards.read_rows(embeddings, start, stop)
        np.minimum(lowest, rows.min(axis=0), out=lowest)
        np.maximum(highest, rows.max(axis=0), out=highest)
        vector_shards.release_memory(embeddings, start, stop)
    return np.stack([lowest, highest])


def open_quantized(artifact: Artifact) -> QuantizedVectors:
    """The quantized vectors of a finished artifact, memory-mapped."""
    from pipeline.search.quantized import QuantizedVectors

    stored = vector_shards.open_embeddings(artifact)
    ranges = np.array(artifact.array(RANGES)) if RANGES in artifact.files else None
    return QuantizedVectors(stored.shards, artifact.facts["dimension"], ranges)


def search(
    retriever: Retriever[RowSettings], in_parts: bool, inputs: Inputs, draft: Draft, context: Context
) -> Facts:
    """Search the index, or the stored vectors, `in_parts` by an engine or in this process."""
    from pipeline.search.faiss_index import index_size

    index, precision = retriever.config.index, retriever.settings.vector_precision
    search_parts = partial(_search_parts, retriever.config) if in_parts else None
    facts = texts.search(retriever, inputs, draft, context, search_parts)
    dimension = inputs["queries"].shape[1]
    size = index_size(index.factory, index.metric, dimension, precision)
    sizes = {"bytes": round(size.passage), "ids": size.ids, "codebooks": size.codebooks * index.shards}
    form = {"dimension": dimension, "precision": precision, "factory": index.factory}
    return {**facts, VectorsCost.key: {**form, **sizes}}


PARTS = 4  # parts of the vectors for each worker to search: small ones end at about the same time
PART_BYTES = 256 << 20  # largest size of a part of the vectors that another process searches


def _search_parts(config: Config, inputs: Inputs, k: int, context: Context) -> Ranking:
    """Have an engine search the index's shards, or parts of the stored vectors, and merge the hits."""
    from pipeline.search import exact

    ids, queries, engine = inputs["data"].passages.ids, inputs["queries"], context.open_engine()
    search = config.search.model_copy(update={"top_k": k})
    best: Ranking | None = None
    job, parts = _parts_to_search(config.index, search, inputs, engine.workers)
    engine.start(len(parts))
    bar_of = context.progress("search", len(queries) * len(parts), "queries")
    with bar_of as bar, context.meter.working("pipeline.search.faiss_index"):
        for result in context.counted_parts(job, parts, bar):
            best = exact.merge(best, result.outputs, result.part.start, k, ids)
    if best is None:
        raise RuntimeError("a collection without passages")
    return best


def _parts_to_search(
    index: IndexConfig, search: SearchConfig, inputs: Inputs, workers: int
) -> tuple[PartJob, list[Part]]:
    """The search of one part, and the parts: the shards of the index, or ranges of the stored vectors."""
    queries, ids = inputs["queries"], inputs["data"].passages.ids
    if "index" in inputs:
        stored: StoredIndex = inputs["index"]
        rows, dimension = stored.artifact.facts["rows"], stored.artifact.facts["dimension"]
        spans = vector_shards.split_evenly(rows, index.shards)
    else:
        embeddings: Embeddings = inputs["passages"]
        rows = len(embeddings)
        dimension = embeddings.dimension
        in_bytes = math.ceil(sum(shard.nbytes for shard in embeddings.shards) / PART_BYTES)
        spans = vector_shards.split_evenly(rows, max(PARTS * workers, in_bytes))
        search = search.model_copy(update={"device": "cpu"})
    vector_shards.check_counts(rows, dimension, len(ids), queries)

    def read(number: int) -> tuple[UInt8 | Embeddings, pa.ChunkedArray]:
        start, stop = spans[number]
        if "index" in inputs:
            shard = stored.artifact.folder / INDEX_SHARD.format(number)
            return np.memmap(shard, np.uint8, "r"), ids.slice(start, stop - start)
        return vector_shards.rows_of(embeddings, start, stop), ids.slice(start, stop - start)

    job = PartJob(partial(jobs.search_part, queries, index, search))
    return job, [Part(*span, partial(read, number)) for number, span in enumerate(spans)]
