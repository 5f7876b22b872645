"""Searchers: an index, or the stored vectors themselves, opened to find the best passages of queries.

Each has the `count` and the `dimension` of its vectors, and `search(queries, k, ids, bar)`, which returns the
best k passages of queries float32 [queries, dimension] in the contract's order, given the passages' ids,
Arrow strings [count]. `by_products` tells whether that is an `exact_search`, for which `exact.prepare`
compiles kernels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.config import FLAT, IndexConfig, SearchConfig
from pipeline.core.display import Bar
from pipeline.core.records import Embeddings, Float32, Int64, Ranking, UInt8
from pipeline.search import exact, faiss_index, scoring
from pipeline.search.faiss_library import faiss
from pipeline.search.quantized import QuantizedSearcher, QuantizedVectors
from pipeline.search.scoring import Metric, for_metric


class ExactSearcher:
    """Exact search of stored vectors, within `search.memory_mb`.

    Those of a Flat index, which owns their memory, have length 1 for cosine: the queries are scaled once, and
    the metric is a product.
    """

    by_products = True

    def __init__(
        self,
        index: IndexConfig,
        search: SearchConfig,
        embeddings: Embeddings,
        flat: faiss.Index | None = None,
    ) -> None:
        self.flat, self.compared = flat, index.metric
        scaled = flat is not None and index.metric == "cosine"
        self.metric: Metric = "inner_product" if scaled else index.metric
        self.config, self.embeddings = search, embeddings
        self.count = len(embeddings)
        self.dimension = embeddings.dimension

    def search(self, queries: Float32, k: int, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """The best passages of each query; see the module."""
        queries = for_metric(queries, self.compared) if self.flat is not None else queries
        memory_mb, device = self.config.memory_mb, self.config.device
        return exact.exact_search(
            self.embeddings, queries, k, ids, self.metric, bar, memory_mb=memory_mb, device=device
        )

    def score(self, query: Float32, rows: Int64) -> Float32:
        """float32 [n]: the scores of some passages, by their rows, for a query, float32 [1, dimension]."""
        query = for_metric(query, self.compared)
        return scoring.score_candidates(self.embeddings, rows, query, np.zeros_like(rows), self.metric)


class ApproximateSearcher:
    """Search of any other index."""

    by_products = False

    def __init__(self, index: IndexConfig, search: SearchConfig, stored: Path | UInt8) -> None:
        self.metric, self.config = index.metric, search
        # an index that is compared is read into memory, so that the disk has no part in its speed
        self.index = faiss_index.read_index(stored, mapped=not search.against_exact)
        faiss_index.set_search_parameters(self.index, index.factory, search.parameters)
        self.count, self.dimension = self.index.ntotal, self.index.d

    def search(self, queries: Float32, k: int, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """The best passages of each query; see the module."""
        return faiss_index.search_index(self.index, queries, k, ids, self.metric, self.config.batch_size, bar)


Searcher = ExactSearcher | ApproximateSearcher | QuantizedSearcher


def open_searcher(
    index: IndexConfig, search: SearchConfig, stored: Path | UInt8 | Embeddings | QuantizedVectors
) -> Searcher:
    """The searcher of stored vectors, or of an index, given as its file or the bytes of that."""
    if isinstance(stored, Embeddings):
        return ExactSearcher(index, search, stored)
    if isinstance(stored, QuantizedVectors):
        return QuantizedSearcher(search, stored)
    if index.factory != FLAT:
        return ApproximateSearcher(index, search, stored)
    flat = faiss_index.read_index(stored)
    assert isinstance(flat, faiss.IndexFlat)
    rows = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(flat.ntotal, flat.d)  # no copy
    return ExactSearcher(index, search, Embeddings((rows,)), flat)
