"""Jobs: texts encoded, pairs scored, vectors searched, and the shards of an index built and measured.

The last three arguments of each are those of `pipeline.engines.engine.Job`; `functools.partial` gives those
before them. `merge` and `total_cost` put the outputs of several parts together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config import IndexConfig, SearchConfig
from pipeline.core.display import Bar
from pipeline.core.records import Embeddings, Facts, Float32, Ranking, UInt8
from pipeline.encoders import Encoder, Role, Usage
from pipeline.encoders.pairs import Scorer
from pipeline.engines.engine import Content

if TYPE_CHECKING:
    import faiss
    import pyarrow as pa

    from pipeline.search.scoring import Metric


def encode(role: Role, texts: list[str], encoder: Encoder | None, bar: Bar) -> tuple[Content, Usage]:
    """The rows a model produces for some texts, and what they cost."""
    if encoder is None:
        raise RuntimeError("Engine.load comes before texts are encoded")
    usage = Usage()
    return encoder.encode(texts, role, usage, bar), usage


def score(pairs: list[tuple[str, str]], scorer: Scorer | None, bar: Bar) -> tuple[Float32, Usage]:
    """Scores float32 [pairs] of queries and passages, and what they cost."""
    if scorer is None:
        raise RuntimeError("Engine.load comes before pairs are scored")
    usage = Usage()
    return scorer.score(pairs, usage, bar), usage


def search_vectors(
    queries: Float32,
    metric: Metric,
    search: SearchConfig,
    searched: tuple[Embeddings, pa.ChunkedArray],
    encoder: Encoder | None,
    bar: Bar,
) -> Ranking:
    """The best passages of each query among some stored vectors, found exactly.

    Args:
        queries: float32 [queries, dimension].
        metric: What a score is.
        search: The search section.
        searched: The vectors, and the passages' ids, Arrow strings, which decide between equal scores.
        encoder: Not used.
        bar: Advanced by each query.

    Returns:
        Passages by their row in this part.
    """
    from pipeline.search import exact

    vectors, ids = searched
    return exact.exact_search(vectors, queries, search.top_k, ids, metric, bar, memory_mb=search.memory_mb)


def build_index(index: IndexConfig, vectors: Embeddings, encoder: Encoder | None, bar: Bar) -> faiss.Index:
    """The Faiss index of some vectors.

    Raises:
        InputError: See `pipeline.search.faiss_index.build_index`.
    """
    from pipeline.search import faiss_index

    return faiss_index.build_index(
        vectors, index.factory, index.metric, bar, train_rows=index.train_rows, seed=index.seed
    )


def build_index_bytes(index: IndexConfig, vectors: Embeddings, encoder: Encoder | None, bar: Bar) -> UInt8:
    """The Faiss index of some vectors, as the bytes of its file."""
    from pipeline.search import faiss_index

    return faiss_index.index_to_bytes(build_index(index, vectors, encoder, bar))


def search_index(
    queries: Float32,
    index: IndexConfig,
    search: SearchConfig,
    searched: tuple[UInt8, pa.ChunkedArray],
    encoder: Encoder | None,
    bar: Bar,
) -> Ranking:
    """The best passages of each query in one shard of an index, given as the bytes of its Faiss file.

    The other arguments, and what is returned, are as in `search_vectors`.
    """
    from pipeline.search import searchers

    stored, ids = searched
    return searchers.open_searcher(index, search, stored).search(queries, ids, bar)


def measure_index(
    queries: Float32,
    index: IndexConfig,
    search: SearchConfig,
    stored: UInt8,
    encoder: Encoder | None,
    bar: Bar,
) -> Facts:
    """What searching one shard of an index costs: see `searchers.ApproximateSearcher.measure`."""
    from pipeline.search import searchers

    figures = searchers.ApproximateSearcher(index, search, stored).measure(queries)
    bar.update()
    return figures


def merge(best: Ranking | None, found: Ranking, first_row: int, top_k: int, ids: pa.ChunkedArray) -> Ranking:
    """The best passages of each query, by their row in the collection.

    Args:
        best: Those of the parts before; None for the first part.
        found: Those of one more part, by their row in it.
        first_row: The first row of this part.
        top_k: Hits kept for each query.
        ids: Arrow strings, the ids of the collection's passages; they decide between equal scores.
    """
    from pipeline.search import exact

    rows = np.where(found.passages >= 0, found.passages + first_row, found.passages)
    moved = Ranking(rows, found.scores)
    return moved if best is None else exact.merge_rankings([best, moved], top_k, ids)


def total_cost(shards: Sequence[Facts]) -> Facts:
    """The cost of shards that are searched one after the other: the sums of their memory and times.

    The merge of their hits is not counted, and a figure that one shard lacks is left out.
    """

    def rate(each: Sequence[float]) -> float:
        return round(1 / sum(1 / one for one in each), 1)

    rules: dict[str, Callable[[Sequence[float]], float]] = {
        "memory_mb": lambda each: round(sum(each), 3),
        "threads": min,
        "queries_per_second": rate,
        "queries_per_second_one_thread": rate,
    }
    whole: Facts = {
        name: rule([shard[name] for shard in shards])
        for name, rule in rules.items()
        if all(name in shard for shard in shards)
    }
    latencies = [shard["latency_ms"] for shard in shards]
    return whole | {
        "latency_ms": {name: round(sum(each[name] for each in latencies), 4) for name in latencies[0]}
    }
