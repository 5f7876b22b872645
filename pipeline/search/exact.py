"""Exact search: the best passages of each query among stored vectors.

The ranking does not depend on how the vectors are split or where they are: in memory, on disk, or spread over
machines. `candidates` explains why nothing is lost, `scoring` why scores are always the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from pipeline.core import machine
from pipeline.core.display import Bar, silent
from pipeline.core.records import Embeddings, Float32, Int64, Ranking
from pipeline.search import scoring
from pipeline.search.candidates import empty_ranking, set_rows
from pipeline.search.scan import DEVICE_ROWS, DeviceScan, StreamingScan, block_and_group_sizes
from pipeline.search.scoring import Metric, for_metric
from pipeline.storage import vector_shards

if TYPE_CHECKING:
    import torch

    from pipeline.search.faiss_library import faiss

SMALL = 1 << 24  # multiplications up to which every pair is scored: finding candidates takes as long
LEAST_DIMENSION = 64  # a pair of shorter vectors takes as long
ENOUGH = 1e10  # operations from which on integer products are worth the time it takes to load their kernels
CORE_RATE = {"amx": 5e11, "vnni": 1.5e11, "other": 5e10}
"""Operations of a search that a core does in a second, of 1.5 million rows (`scripts/bench_search.py`)."""
GPU_START = 10.0  # seconds until torch has started on a GPU
GPU_BYTES = 5e9  # of rows that reach a GPU in a second, on one H200 (`scripts/bench_gpu_search.py`)
LARGEST = 1 << 16  # dimensions up to which sums of integer products cannot overflow, with much to spare


@dataclass(frozen=True)
class ExactSearcher:
    """Exact search of stored vectors; see `faiss_index.Searcher`.

    Args:
        embeddings: Vectors of n passages.
        ids: Arrow strings [n], the passages' ids, by which ties are ordered.
        metric: The metric.
        memory_mb: Limit of the memory used, in 10^6 bytes; None reads all vectors once.
        device: `search.device` of the config; the ranking is the same on each.
        scaled: Whether the vectors have length 1 for cosine. Then `metric` is a product.
        flat: The index that owns the memory of the vectors, if one does.
    """

    by_products: ClassVar[bool] = True
    embeddings: Embeddings
    ids: pa.ChunkedArray
    metric: Metric
    memory_mb: int | None = None
    device: str = "cpu"
    scaled: bool = False
    flat: faiss.Index | None = None

    def search(self, queries: Float32, k: int, bar: Bar) -> Ranking:
        """The best min(k, n) passages of each query, float32 [queries, dimension], in the contract's order.

        `bar` counts queries, in proportion to the rows read.
        """
        embeddings, n = self.embeddings, len(self.embeddings)
        queries = np.ascontiguousarray(for_metric(queries, "cosine" if self.scaled else self.metric))
        k = min(k, n)
        # within a limit of memory, vectors and scores take half of it at most
        bytes_ = n * (8 * embeddings.dimension + 80 * len(queries))
        fits = self.memory_mb is None or bytes_ <= self.memory_mb * 500_000
        if fits and n * len(queries) * max(embeddings.dimension, LEAST_DIMENSION) <= SMALL:
            rows = for_metric(vector_shards.read_rows(embeddings, 0, n), self.metric)
            wide, scores = queries.astype(np.float64), np.empty((len(queries), n), np.float32)
            for query in range(len(queries)):
                scores[query] = scoring.score_pairs(wide, np.full(n, query), rows, self.metric)
            bar.update(len(queries))
            return scoring.rank_candidates(np.tile(np.arange(n), (len(queries), 1)), scores, k, self.ids)
        card = find_device(self.device, n, queries)
        if card is None and filter_pays(queries, n):
            filtered = self.search_filtered(queries, k, bar)
            if filtered is not None:
                return filtered
        return self._scan(queries, k, bar, card)

    def search_filtered(self, queries: Float32, k: int, bar: Bar) -> Ranking | None:
        """Search by `FilteredScan`; None where the filter does not help these vectors."""
        from pipeline.search import filtered_scan  # imports Numba, which a small search does not need

        dimension = self.embeddings.dimension
        piece, threads, group = filtered_scan.find_sizes(dimension, k, len(queries), self.memory_mb)
        ranking = empty_ranking(len(queries), k)
        for start in range(0, len(queries), group):
            part = slice(start, start + group)
            scan = filtered_scan.FilteredScan(self.embeddings, queries[part], k, self.ids, self.metric)
            hits = scan.search(piece, threads, bar)
            if hits is None:
                return None
            set_rows(ranking, part, hits)
        return ranking

    def _scan(self, queries: Float32, k: int, bar: Bar, card: torch.device | None) -> Ranking:
        """Search block by block, on a GPU if a `card` is given."""
        embeddings, memory_mb = self.embeddings, self.memory_mb
        block, group = block_and_group_sizes(embeddings.dimension, k, len(queries), memory_mb)
        ranking = empty_ranking(len(queries), k)
        for start in range(0, len(queries), group):
            part = slice(start, start + group)
            if card is None:
                scan = StreamingScan(embeddings, queries[part], k, self.ids, self.metric)
                scan.collect(block, bar)
            else:
                scan = DeviceScan(embeddings, queries[part], k, self.ids, self.metric)
                scan.collect_on(card, block if memory_mb else DEVICE_ROWS, bar)
            set_rows(ranking, part, scan.candidates.best_hits())
        return ranking

    def score(self, query: Float32, rows: Int64) -> Float32:
        """float32 [n]: the scores of some passages, by their rows, for a query, float32 [1, dimension]."""
        query = for_metric(query, "cosine" if self.scaled else self.metric)
        return scoring.score_candidates(self.embeddings, rows, query, np.zeros_like(rows), self.metric)


def find_device(device: str, n_rows: int, queries: Float32) -> torch.device | None:
    """The device of torch that a search of `n_rows` rows runs on; None is this processor.

    Raises:
        InputError: The device is a GPU that torch cannot use.
    """
    if device == "cpu" or (device == "auto" and not (machine.gpus() and _gpu_pays(n_rows, queries))):
        return None
    import torch

    from pipeline.encoders.torch.devices import check_device

    torch.set_float32_matmul_precision("highest")  # never TF32, which the environment may have set
    card = "cuda" if device == "auto" else device
    check_device(card, "fp16", "search")
    return torch.device(card)


def _gpu_pays(n_rows: int, queries: Float32) -> bool:
    """Whether a GPU is likely faster: it waits for the rows, and this processor for its products."""
    rate = CORE_RATE["amx" if machine.has_amx() else "vnni" if machine.has_vnni() else "other"]
    here = 2.0 * n_rows * queries.size / (rate * machine.threads())
    return bool(here > GPU_START + 4.0 * n_rows * queries.shape[1] / GPU_BYTES)


def compile_filter(dimension: int) -> None:
    """Import and compile what a search that `filter_pays` for uses, so that no measured time holds that."""
    from pipeline.native.nearest import compiling

    one = np.ones((1, dimension), np.float32)
    with compiling(), silent("", None, "") as unseen:
        searcher = ExactSearcher(Embeddings((one,)), pa.chunked_array([["a"]]), "l2")
        searcher.search_filtered(one, 1, unseen)


def filter_pays(queries: Float32, n_rows: int) -> bool:
    """Whether a search of `n_rows` rows is large enough, and the processor able, to filter by int8."""
    is_large = 2.0 * n_rows * queries.size > ENOUGH
    return is_large and queries.shape[1] <= LARGEST and machine.has_vnni()


def merge(best: Ranking | None, found: Ranking, first_row: int, top_k: int, ids: pa.ChunkedArray) -> Ranking:
    """The best passages of each query, by their row in the collection, whose ids are `ids`.

    `best` are those of the parts before, None for the first; `found` those of one more part, by their row in
    it, which begins at `first_row`.
    """
    rows = np.where(found.passages >= 0, found.passages + first_row, found.passages)
    if best is None:
        return Ranking(rows, found.scores)
    passages = np.concatenate([best.passages, rows], axis=1)
    scores = np.concatenate([best.scores, found.scores], axis=1)
    return scoring.rank_candidates(passages, scores, top_k, ids)
