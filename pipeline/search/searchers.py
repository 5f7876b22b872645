"""Searchers: an index, or the stored vectors themselves, opened to find the best passages of queries.

Each has the `count` and the `dimension` of its vectors, and `search(queries, ids, bar, documents)`. That
returns the best `search.top_k` passages of each query in the contract's order, for queries float32 [queries,
dimension], the passages' ids as Arrow strings [count], and a bar that counts queries; or, where the vectors
are those of chunks, the best documents, with their ids. `index` and `search` are the sections of the config;
`stored` is the index's file or its bytes (see `faiss_index.read_index`).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.config import FLAT, IndexConfig, SearchConfig
from pipeline.core import machine
from pipeline.core.progress import Bar
from pipeline.core.records import Embeddings, Float32, Int64, Ranking, UInt8
from pipeline.search import exact, faiss_index, faiss_search, gpu, timing
from pipeline.search.documents import Documents, rank_by_search
from pipeline.search.similarity import Metric, for_metric


class StreamingSearcher:
    """Exact search of stored vectors, within `search.memory_mb`."""

    def __init__(self, index: IndexConfig, search: SearchConfig, embeddings: Embeddings) -> None:
        self.metric, self.config, self.embeddings = index.metric, search, embeddings
        self.count = len(embeddings)
        self.dimension = embeddings.dimension

    def search(
        self, queries: Float32, ids: pa.ChunkedArray, bar: Bar, documents: Documents | None = None
    ) -> Ranking:
        """The best passages of each query; see the module."""
        top_k, memory_mb = self.config.top_k, self.config.memory_mb
        return exact.exact_search(
            self.embeddings, queries, top_k, ids, self.metric, bar, memory_mb=memory_mb, documents=documents
        )


class FlatSearcher:
    """Exact search of the vectors of a Flat index, in memory or on a GPU."""

    def __init__(self, index: IndexConfig, search: SearchConfig, stored: Path | UInt8) -> None:
        self.metric = index.metric
        self.config = search
        self.index = faiss_index.read_index(stored)
        self.count, self.dimension = self.index.ntotal, self.index.d

    def search(
        self, queries: Float32, ids: pa.ChunkedArray, bar: Bar, documents: Documents | None = None
    ) -> Ranking:
        """The best passages of each query; see the module. Documents are ranked on the CPU."""
        embeddings = faiss_index.vectors_of_flat(self.index)
        top_k = self.config.top_k
        queries = for_metric(queries, self.metric)  # as the index's vectors were: cosine is now a product
        metric: Metric = "l2" if self.metric == "l2" else "inner_product"
        if documents is not None:
            return exact.exact_search(embeddings, queries, top_k, ids, metric, bar, documents=documents)
        index = gpu.move_to_device(self.index, self.config.device, min(top_k, self.count))
        if index is self.index:
            return exact.exact_search(embeddings, queries, top_k, ids, metric, bar)
        nearest = functools.partial(faiss_search.nearest, index, metric=metric)
        limits = {"batch_size": self.config.batch_size, "max_hits": gpu.max_hits(top_k)}
        return exact.exact_search_via(nearest, embeddings, queries, top_k, ids, metric, bar, **limits)


class ApproximateSearcher:
    """Search of any other index."""

    def __init__(self, index: IndexConfig, search: SearchConfig, stored: Path | UInt8) -> None:
        self.metric, self.config = index.metric, search
        before = machine.resident_mb()
        # an index that is measured is read into memory, so that the disk has no part in its speed
        self.on_cpu = faiss_index.read_index(stored, mapped=not search.against_exact)
        grown = machine.resident_mb() - before  # too little, if it went into memory freed earlier
        size = stored.stat().st_size if isinstance(stored, Path) else stored.nbytes
        self.memory_mb = round(max(grown, size / 1e6), 3)
        faiss_index.set_search_parameters(self.on_cpu, index.factory, search.parameters)
        self.count, self.dimension = self.on_cpu.ntotal, self.on_cpu.d
        self.index = gpu.move_to_device(self.on_cpu, search.device, min(search.top_k + 1, self.count))

    def search(
        self, queries: Float32, ids: pa.ChunkedArray, bar: Bar, documents: Documents | None = None
    ) -> Ranking:
        """The best passages of each query; see the module. Documents are ranked on the CPU."""
        top_k, batch_size = self.config.top_k, self.config.batch_size
        if documents is not None:
            index, metric, chunk_ids = self.on_cpu, self.metric, documents.chunk_ids

            def find(chosen: Int64, k: int, bar: Bar) -> Ranking:
                return faiss_search.search_index(
                    index, queries[chosen], k, chunk_ids, metric, batch_size, bar
                )

            return rank_by_search(find, len(queries), documents, top_k, ids, bar)
        return faiss_search.search_index(
            self.index, queries, top_k, ids, self.metric, batch_size, bar, on_cpu=self.on_cpu
        )

    def measure(self, queries: Float32) -> dict[str, Any]:
        """What a search costs: memory in 10^6 bytes or the name of the GPU, and `timing.time_searches`."""
        queries, k = for_metric(queries, self.metric), min(self.config.top_k, self.count)
        search = functools.partial(faiss_search.nearest, self.index, k=k, metric=self.metric)
        on_gpu = self.index is not self.on_cpu
        number = gpu.choose_gpu(self.config.device, gpu.count_gpus())
        where = {"device": f"cuda:{number}"} if on_gpu else {"memory_mb": self.memory_mb}
        return {**where, **timing.time_searches(search, queries, self.config.batch_size, on_gpu)}


def open_searcher(
    index: IndexConfig, search: SearchConfig, stored: Path | UInt8
) -> FlatSearcher | ApproximateSearcher:
    """The searcher of an index: exact for a Flat index, approximate for others."""
    kind = FlatSearcher if index.factory == FLAT else ApproximateSearcher
    return kind(index, search, stored)


Searcher = StreamingSearcher | FlatSearcher | ApproximateSearcher
