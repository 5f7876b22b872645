"""Who answers the queries? An index as well as it can, the vectors of a Flat index, or those on disk."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from pipeline.config import EXACT, IndexConfig, SearchConfig
from pipeline.core import machine
from pipeline.core.progress import Bar
from pipeline.core.records import Embeddings, Float32, Ranking, UInt8
from pipeline.search import exact, faiss_index, gpu, speed
from pipeline.search.scores import Metric, for_metric


class Searcher(Protocol):
    """Finds the best passages.

    Attributes:
        count: Vectors it searches.
        dimension: Theirs.
    """

    count: int
    dimension: int

    def search(self, queries: Float32, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """The best `search.top_k` passages of each query, in the contract's order.

        Args:
            queries: float32 [queries, dimension].
            ids: Arrow strings [count], of the passages.
            bar: Told of every query searched.
        """
        ...


class Streamed:
    """Exact search among stored vectors, within `search.memory_mb`.

    Args:
        index: The index section.
        search: The search section.
        embeddings: The passages' vectors.
    """

    def __init__(self, index: IndexConfig, search: SearchConfig, embeddings: Embeddings) -> None:
        self.metric, self.config, self.embeddings = index.metric, search, embeddings
        self.count, self.dimension = len(embeddings), embeddings.dimension

    def search(self, queries: Float32, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """See `Searcher.search`."""
        config = self.config
        return exact.best(
            self.embeddings,
            queries,
            config.top_k,
            ids,
            self.metric,
            bar,
            memory_mb=config.memory_mb,
        )


class Exact:
    """Exact search among the vectors of a Flat index, in memory or on a GPU; see `open_searcher`."""

    def __init__(self, index: IndexConfig, search: SearchConfig, stored: Path | UInt8) -> None:
        self.metric, self.config, self.index = index.metric, search, faiss_index.read(stored)
        self.count, self.dimension = self.index.ntotal, self.index.d

    def search(self, queries: Float32, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """See `Searcher.search`."""
        embeddings, top_k = faiss_index.vectors_of(self.index), self.config.top_k
        queries = for_metric(queries, self.metric)  # as the index's vectors are, so that cosine is a product
        metric: Metric = "l2" if self.metric == "l2" else "inner_product"
        placed = gpu.place(self.index, self.config.device, min(top_k, self.count))
        if placed is self.index:
            return exact.best(embeddings, queries, top_k, ids, metric, bar)
        find = functools.partial(faiss_index.find, placed, metric=metric)
        size, most = self.config.batch_size, gpu.most_hits(top_k)
        return exact.best_via(find, embeddings, queries, top_k, ids, metric, bar, batch_size=size, most=most)


class Approximate:
    """Search by any other index; see `open_searcher`."""

    def __init__(self, index: IndexConfig, search: SearchConfig, stored: Path | UInt8) -> None:
        before = machine.resident_mb()
        opened = faiss_index.read(stored, mapped=not search.against_exact)  # in memory, if that is measured
        grown = machine.resident_mb() - before  # less than it holds, where memory was free already
        size = stored.stat().st_size if isinstance(stored, Path) else stored.nbytes
        self.memory_mb = round(max(grown, size / 1e6), 3)
        faiss_index.tune(opened, index.factory, search.parameters)
        self.metric, self.config = index.metric, search
        self.on_cpu = opened
        self.index = gpu.place(opened, search.device, min(search.top_k + 1, opened.ntotal))
        self.count, self.dimension = opened.ntotal, opened.d

    def search(self, queries: Float32, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """See `Searcher.search`."""
        config = self.config
        return faiss_index.search(
            self.index,
            queries,
            config.top_k,
            ids,
            self.metric,
            config.batch_size,
            bar,
            on_cpu=self.on_cpu,
        )

    def measure(self, queries: Float32) -> dict[str, Any]:
        """What it costs: memory in 10^6 bytes, or the GPU it is on, and what `speed.measure` says."""
        queries, k = for_metric(queries, self.metric), min(self.config.top_k, self.count)
        find = functools.partial(faiss_index.find, self.index, k=k, metric=self.metric)
        on_gpu = self.index is not self.on_cpu
        where = {"device": gpu.name(self.config.device)} if on_gpu else {"memory_mb": self.memory_mb}
        return {**where, **speed.measure(find, queries, self.config.batch_size, on_gpu)}


def open_searcher(index: IndexConfig, search: SearchConfig, stored: Path | UInt8) -> Exact | Approximate:
    """An index, ready to be searched: exactly if it is Flat.

    Args:
        index: The index section.
        search: The search section.
        stored: The index: its file, or the file's bytes (see `faiss_index.read`).

    Raises:
        InputError: The index has no such search parameters.
    """
    return (Exact if index.factory == EXACT else Approximate)(index, search, stored)
