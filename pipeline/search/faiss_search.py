"""Search of a Faiss index on the CPU or a GPU, with ties in the contract's order.

Faiss orders hits by score, and equal scores in its own way. So one hit more than k is fetched. If its score
equals that of the k-th, more passages may tie with them, and the query is searched again for twice as many
hits, until a lower score appears or no passage is left. Then all hits are sorted, and the first k are kept.
"""

from __future__ import annotations

import logging
from typing import Any

import faiss
import numpy as np
import pyarrow as pa

from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.order import sort_hits_by_id
from pipeline.core.records import Float32, Int64, Ranking
from pipeline.search.scoring import Metric, for_metric

log = logging.getLogger(__name__)

FAST_HITS = 1024  # per query; Faiss has faster kernels up to this number
MAX_HITS = 2048  # per query; Faiss refuses more on a GPU, and more lists as well


def search_index(
    index: Any,
    queries: Float32,
    top_k: int,
    ids: pa.ChunkedArray,
    metric: Metric,
    batch_size: int,
    bar: Bar,
    *,
    on_cpu: Any = None,
) -> Ranking:
    """The best passages of each query that the index finds.

    Args:
        index: A faiss index of n vectors.
        queries: float32 [queries, dimension].
        top_k: Hits kept for each query; fewer if the index holds or finds fewer.
        ids: Arrow strings [n], the passages' ids.
        metric: The metric that the index was built for.
        batch_size: Queries given to Faiss at once.
        bar: Counts queries.
        on_cpu: The index on the CPU, if `index` is a copy on a GPU, which limits the number of hits: queries
            with ties across the last rank are searched there. None if `index` is on the CPU.

    Returns:
        [queries, min(top_k, n)], ties in the contract's order, also those across the last rank.
    """
    queries = for_metric(queries, metric)
    k = min(top_k, index.ntotal)
    for_ties = index if on_cpu is None else on_cpu
    passages = np.empty((len(queries), k), np.int64)
    scores = np.empty((len(queries), k), np.float32)
    for start in range(0, len(queries), batch_size):
        batch = slice(start, start + batch_size)
        passages[batch], scores[batch] = _search_batch(index, for_ties, queries[batch], k, ids, metric)
        bar.update(len(queries[batch]))
    return Ranking(passages, scores)


def nearest(index: Any, queries: Float32, k: int, metric: Metric) -> tuple[Int64, Float32]:
    """The hits of Faiss itself: rows int64 [queries, k], -1 for padding, and scores float32, falling."""
    scores, passages = index.search(queries, k)
    return passages, 0 - scores if metric == "l2" else scores


def _search_batch(
    index: Any, for_ties: Any, queries: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
) -> tuple[Int64, Float32]:
    """The best k of one batch of queries: passages and scores."""
    passages, scores = _in_order(*nearest(index, queries, min(k + 1, index.ntotal), metric), ids)
    if scores.shape[1] > k:
        ties_cut = (scores[:, k - 1] == scores[:, k]) & (passages[:, k] >= 0)
        for row in np.flatnonzero(ties_cut):
            query = queries[row : row + 1]
            passages[row, :k], scores[row, :k] = _with_all_ties(for_ties, query, k, ids, metric)
    return passages[:, :k], scores[:, :k]


def _with_all_ties(
    index: Any, query: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
) -> tuple[Int64, Float32]:
    """The best k of one query, if other passages share its k-th score."""
    fetched = k + 1
    while True:
        fetched = min(2 * fetched, index.ntotal)
        passages, scores = nearest(index, query, fetched, metric)
        if fetched == index.ntotal or passages[0, -1] < 0 or scores[0, -1] < scores[0, k - 1]:
            passages, scores = _in_order(passages, scores, ids)
            return passages[0, :k], scores[0, :k]


def _in_order(passages: Int64, scores: Float32, ids: pa.ChunkedArray) -> tuple[Int64, Float32]:
    """Hits in the contract's order without duplicates: an NSG graph may return a passage twice."""
    ascending = np.sort(passages, axis=1)
    duplicate = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
    for row in np.flatnonzero(duplicate.any(axis=1)):
        _, first = np.unique(passages[row], return_index=True)
        passages[row, np.delete(np.arange(passages.shape[1]), first)] = -1
    return sort_hits_by_id(passages, scores, ids)


def choose_gpu(device: str, gpus: int) -> int | None:
    """The number of the GPU to use, None for the CPU.

    Args:
        device: `search.device`: auto, cpu, cuda or cuda:N.
        gpus: How many GPUs Faiss sees; 0 if it was built without GPU support.
    """
    if device == "cpu" or (device == "auto" and not gpus):
        return None
    wanted = int(device.partition(":")[2] or 0)
    if wanted >= gpus:
        raise InputError(
            f"search.device: {device}, and faiss sees {gpus} GPUs here",
            allowed="auto, cpu" + "".join(f", cuda:{number}" for number in range(gpus)),
            fix="set search.device to cpu, or install faiss with its GPU part",
        )
    return wanted


def count_gpus() -> int:
    """How many GPUs Faiss can use."""
    return int(faiss.get_num_gpus())


def move_to_device(index: Any, device: str, hits: int) -> Any:
    """A copy of an index on the GPU that `search.device` chooses, or the index itself for the CPU.

    Args:
        index: A faiss index, its search parameters set.
        device: `search.device`. An index that the GPU cannot take stays on the CPU if this is auto, and is
            refused otherwise.
        hits: Fewest hits per query that a search needs.
    """
    number = choose_gpu(device, count_gpus())
    if number is None:
        return index
    try:
        _check_limits(index, hits)
        return _copy_to_gpu(index, number)
    except RuntimeError as error:
        if device != "auto":
            raise InputError(
                f"search.device: {device}: {error}", allowed="auto, cpu", fix="set search.device to cpu"
            ) from None
        log.warning("searching on the CPU, as the GPU cannot take this index: %s", error)
        return index


def max_hits(top_k: int) -> int:
    """The most hits per query to ask a GPU for, when some more than `top_k` are useful."""
    return FAST_HITS if top_k < FAST_HITS else MAX_HITS


def _check_limits(index: Any, hits: int) -> None:
    """Raise a RuntimeError for what Faiss itself would refuse only during the search."""
    if hits > MAX_HITS:
        raise RuntimeError(f"a GPU returns {MAX_HITS:,} hits at most, and {hits:,} are needed")
    inverted = faiss.try_extract_index_ivf(index)
    if inverted and inverted.nprobe > MAX_HITS:
        raise RuntimeError(f"a GPU searches {MAX_HITS:,} lists at most, and nprobe is {inverted.nprobe:,}")


def _copy_to_gpu(index: Any, number: int) -> Any:
    """A copy of the index on a GPU, in fp32 throughout, which is Faiss's default."""
    options = faiss.GpuClonerOptions()
    if hasattr(options, "use_cuvs"):
        options.use_cuvs = False  # the error bound in `exact.exact_search_via` is not known to hold for it
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), number, index, options)
