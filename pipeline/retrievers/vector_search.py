"""Searches of the dense retriever: in this process, or part by part by an engine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.config import IndexConfig, SearchConfig
from pipeline.core.machine import Meter
from pipeline.core.progress import Bar
from pipeline.core.records import Embeddings, Ranking
from pipeline.engines import Done, Engine, Job, Part, jobs
from pipeline.retrievers.ranking import save_ranking
from pipeline.retrievers.stage import Context, Facts, Inputs
from pipeline.retrievers.stored_index import StoredIndex
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Draft

if TYPE_CHECKING:
    from pipeline.search.documents import Documents

PARTS = 4  # parts of the vectors for each worker to search: small ones end at about the same time
PART_BYTES = 256 << 20  # largest size of a part of the vectors that another process searches


def search_whole(
    index: IndexConfig,
    search: SearchConfig,
    measured: bool,
    documents_of: Callable[[Inputs], Documents | None],
    inputs: Inputs,
    draft: Draft,
    context: Context,
) -> Facts:
    """Search in this process: the index, or the stored vectors if the inputs have no index.

    Where the vectors are those of chunks, `documents_of` gives the documents that are ranked.
    """
    from pipeline.search import exact, searchers

    collection, queries, meter = inputs["data"], inputs["queries"], context.meter
    documents = documents_of(inputs)
    searcher: searchers.Searcher
    if "index" in inputs:
        searcher = searchers.open_searcher(index, search, inputs["index"].file(0))
    else:
        searcher = searchers.StreamingSearcher(index, search, inputs["passages"])
    count = len(collection.passages) if documents is None else documents.chunks
    vector_shards.check_counts(searcher.count, searcher.dimension, count, queries)
    exact.prepare(queries, searcher.count)
    with context.progress("search", len(queries), "queries") as bar, meter.working():
        ranking = searcher.search(queries, collection.passages.ids, bar, documents)
    meter.count(len(queries))
    facts = save_ranking(draft, collection, ranking)
    meter.stop()
    if measured and isinstance(searcher, searchers.ApproximateSearcher):
        facts["index"] = {**inputs["index"].cost, **searcher.measure(queries)}
    return facts


def search_parts(
    index: IndexConfig, search: SearchConfig, measured: bool, inputs: Inputs, draft: Draft, context: Context
) -> Facts:
    """Have an engine search the index's shards, or parts of the stored vectors, and merge the hits."""
    collection, queries, meter, engine = inputs["data"], inputs["queries"], context.meter, context.engine
    best: Ranking | None = None
    job, parts = _parts_to_search(index, search, inputs, engine.workers)
    engine.start(len(parts))
    bar_of = context.progress("search", len(queries) * len(parts), "queries")
    with bar_of as bar, meter.working("pipeline.search.searchers"):
        for done in counted_parts(engine, meter, job, parts, bar):
            best = jobs.merge(best, done.outputs, done.part.start, search.top_k, collection.passages.ids)
    if best is None:
        raise RuntimeError("a collection without passages")
    meter.count(len(queries))
    facts = save_ranking(draft, collection, best)
    meter.stop()
    if measured and "index" in inputs:
        stored: StoredIndex = inputs["index"]
        measure = partial(jobs.measure_index, queries, index, search)
        shards = [replace(part, read=partial(stored.bytes_of, n)) for n, part in enumerate(parts)]
        with context.progress("measure", len(shards), "shards") as bar:
            costs = [done.outputs for done in engine.each(measure, shards, bar)]
        facts["index"] = {**stored.cost, **jobs.total_cost(costs)}
    return facts


def _parts_to_search(
    index: IndexConfig, search: SearchConfig, inputs: Inputs, workers: int
) -> tuple[Job, list[Part]]:
    """The search of one part, and the parts: the shards of the index, or ranges of the stored vectors."""
    queries, ids = inputs["queries"], inputs["data"].passages.ids
    job: Job
    if "index" in inputs:
        stored: StoredIndex = inputs["index"]
        rows, dimension = stored.artifact.facts["rows"], stored.artifact.facts["dimension"]
        spans = vector_shards.split_evenly(rows, index.shards)
        job = partial(jobs.search_index, queries, index, search)
    else:
        embeddings: Embeddings = inputs["passages"]
        rows = len(embeddings)
        dimension = embeddings.dimension
        in_bytes = math.ceil(sum(shard.nbytes for shard in embeddings.shards) / PART_BYTES)
        spans = vector_shards.split_evenly(rows, max(PARTS * workers, in_bytes))
        job = partial(jobs.search_vectors, queries, index.metric, search)
    vector_shards.check_counts(rows, dimension, len(ids), queries)

    def read(number: int) -> tuple[Any, Any]:
        start, stop = spans[number]
        if "index" in inputs:
            return stored.bytes_of(number), ids.slice(start, stop - start)
        return vector_shards.rows_of(embeddings, start, stop), ids.slice(start, stop - start)

    return job, [Part(*span, partial(read, number)) for number, span in enumerate(spans)]


def counted_parts(engine: Engine, meter: Meter, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[Done]:
    """The parts as the engine finishes them; the meter notes how many parts each machine did."""
    nodes = Counter[str]()
    for done in engine.each(job, parts, bar):
        nodes[done.node] += 1
        yield done
    meter.note("engine", {"kind": engine.kind, "workers": engine.workers, "parts": dict(nodes)})
