"""Jobs: texts encoded, vectors searched exactly, and the shards of an index built, searched and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from pipeline.config import IndexConfig, SearchConfig
from pipeline.core.progress import Bar
from pipeline.core.records import Embeddings, Float32, Ranking, UInt8
from pipeline.encoders import Encoder, Role, Usage

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.search.similarity import Metric


Data = TypeVar("Data", Embeddings, UInt8)


@dataclass(frozen=True)
class Encode:
    """Turns texts, a list of strings, into vectors float32 [texts, dimension], and their `Usage`."""

    role: Role

    def run(self, inputs: list[str], encoder: Encoder | None, bar: Bar) -> tuple[Float32, Usage]:
        """See `pipeline.engines.engine.Job`."""
        if encoder is None:
            raise RuntimeError("Engine.load comes before texts are encoded")
        usage = Usage()
        return encoder.encode(inputs, self.role, usage, bar), usage


@dataclass(frozen=True)
class Searched(Generic[Data]):
    """Inputs of a search: some passages.

    Attributes:
        data: Their vectors, or a Faiss file that indexes them, uint8 [bytes].
        ids: Arrow strings, their ids, which decide between equal scores.
        first_row: The collection's row of the first.
    """

    data: Data
    ids: pa.ChunkedArray
    first_row: int

    def of_collection(self, found: Ranking) -> Ranking:
        """A ranking of these passages, by the collection's row numbers."""
        rows = np.where(found.passages >= 0, found.passages + self.first_row, found.passages)
        return Ranking(rows, found.scores)


@dataclass(frozen=True)
class SearchVectors:
    """Finds the best passages of each query among stored vectors, exactly: `Searched` to `Ranking`.

    Attributes:
        queries: float32 [queries, dimension].
        metric: What a score is.
        search: The search section.
    """

    queries: Float32
    metric: Metric
    search: SearchConfig

    def run(self, inputs: Searched[Embeddings], encoder: Encoder | None, bar: Bar) -> Ranking:
        """See `pipeline.engines.engine.Job`."""
        from pipeline.search import exact

        search = self.search
        found = exact.exact_search(
            inputs.data, self.queries, search.top_k, inputs.ids, self.metric, bar, memory_mb=search.memory_mb
        )
        return inputs.of_collection(found)


@dataclass(frozen=True)
class BuildIndex:
    """Builds the index of some vectors, `Embeddings`: the bytes of a Faiss file, uint8."""

    index: IndexConfig

    def run(self, inputs: Embeddings, encoder: Encoder | None, bar: Bar) -> UInt8:
        """See `pipeline.engines.engine.Job`.

        Raises:
            InputError: See `pipeline.search.faiss_index.build_index`.
        """
        from pipeline.search import faiss_index

        return faiss_index.index_to_bytes(self.build(inputs, bar))

    def build(self, embeddings: Embeddings, bar: Bar) -> Any:
        """The Faiss index itself."""
        from pipeline.search import faiss_index

        index = self.index
        return faiss_index.build_index(
            embeddings, index.factory, index.metric, bar, train_rows=index.train_rows, seed=index.seed
        )


@dataclass(frozen=True)
class SearchIndex:
    """Finds the best passages of each query in one shard of an index: `Searched` to `Ranking`.

    Attributes:
        queries: float32 [queries, dimension].
        index: The index section.
        search: The search section.
    """

    queries: Float32
    index: IndexConfig
    search: SearchConfig

    def run(self, inputs: Searched[UInt8], encoder: Encoder | None, bar: Bar) -> Ranking:
        """See `pipeline.engines.engine.Job`."""
        from pipeline.search import searchers

        searcher = searchers.open_searcher(self.index, self.search, inputs.data)
        return inputs.of_collection(searcher.search(self.queries, inputs.ids, bar))


@dataclass(frozen=True)
class MeasureIndex:
    """Measures one shard of an index, uint8 [bytes]: what `searchers.ApproximateSearcher.measure` returns.

    Attributes: those of `SearchIndex`.
    """

    queries: Float32
    index: IndexConfig
    search: SearchConfig

    def run(self, inputs: UInt8, encoder: Encoder | None, bar: Bar) -> dict[str, Any]:
        """See `pipeline.engines.engine.Job`."""
        from pipeline.search import searchers

        searcher: Any = searchers.open_searcher(self.index, self.search, inputs)
        figures: dict[str, Any] = searcher.measure(self.queries)
        bar.update()
        return figures


def merge(best: Ranking, found: Ranking, top_k: int, ids: pa.ChunkedArray) -> Ranking:
    """The best passages of each query, of those found before and those of one more part.

    Args:
        best: Of the parts before.
        found: Of this part.
        top_k: Hits kept for each query.
        ids: Arrow strings, the ids of the collection's passages; they decide between equal scores.
    """
    from pipeline.search import exact

    return exact.merge_rankings([best, found], top_k, ids)


def total_cost(shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The cost of shards that are searched one after the other: the sums of their memory and times.

    The merge of their hits is not counted, and a figure that one shard lacks is left out.
    """

    def rate(each: Sequence[float]) -> float:
        return round(1 / sum(1 / one for one in each), 1)

    rules: dict[str, Callable[[Sequence[Any]], Any]] = {
        "device": lambda each: ", ".join(sorted(set(each))),
        "memory_mb": lambda each: round(sum(each), 3),
        "threads": min,
        "queries_per_second": rate,
        "queries_per_second_one_thread": rate,
        "latency_ms": lambda each: {name: round(sum(one[name] for one in each), 4) for name in each[0]},
    }
    return {
        name: rule([shard[name] for shard in shards])
        for name, rule in rules.items()
        if all(name in shard for shard in shards)
    }
