"""How does Faiss build, keep and search an index, so that ties come out in trec_eval's order?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.errors import InputError
from pipeline.core.order import sort_hits_by_id
from pipeline.core.progress import Bar
from pipeline.core.records import Embeddings, Float32, Int64, Ranking, UInt8
from pipeline.search.scores import Metric, for_metric
from pipeline.storage import vectors

CHUNK = 65536  # vectors read and added at once
TRAIN_ROWS, ROWS_PER_LIST = 65536, 64  # of the training sample, unless the config says
MOST_DIMENSIONS = 65536  # that a factory string is tried with
_DIVISORS = re.compile(r"(?:Q|\+|IMI|Panorama)(\d+)")  # numbers in it that divide the dimension
_FEW = re.compile(r"(?:IVF0+|HNSW0*[01]|NSG0*[0-3])(?!\d)")  # lists or links: too few for Faiss to live with

Parameters = Mapping[str, int | float]


def build(
    embeddings: Embeddings,
    factory: str,
    metric: Metric,
    bar: Bar,
    *,
    train_rows: int | None = None,
    seed: int = 0,
) -> Any:
    """Build an index over vectors that stay on disk until they are added.

    The vectors and the settings alone decide the result, not how the vectors are sharded.

    Args:
        embeddings: The passages' vectors; a hit's number is its row.
        factory: A faiss `index_factory` string.
        metric: What a score is.
        bar: Told of every vector added.
        train_rows: Vectors to train on, where the index needs that; None takes 64 a list, at least 65,536.
        seed: Of the drawing of those.

    Returns:
        The faiss index.

    Raises:
        InputError: See `create`; or there are too few vectors to train on, or for an index of this kind.
    """
    index = create(factory, metric, embeddings.dimension)
    n = len(embeddings)
    if not index.is_trained:
        wanted = train_rows or max(TRAIN_ROWS, ROWS_PER_LIST * _lists(index))
        drawn = np.random.default_rng(seed).choice(n, min(wanted, n), replace=False)
        try:
            index.train(for_metric(vectors.pick(embeddings, np.sort(drawn)), metric))
        except RuntimeError as error:
            raise _refusal(f"index.factory: '{factory}' on {len(drawn):,} of {n:,} vectors", error) from None
    chunk = n if "NSG" in factory else CHUNK  # that graph is made of all at once
    for start in range(0, n, chunk):
        stop = min(start + chunk, n)
        rows = np.ascontiguousarray(for_metric(vectors.read(embeddings, start, stop), metric))
        try:
            index.add(rows)
        except RuntimeError as error:
            raise _refusal(f"index.factory: '{factory}' with {n:,} vectors", error) from None
        vectors.forget(embeddings, start, stop)
        bar.update(stop - start)
    return index


def create(factory: str, metric: Metric, dimension: int) -> Any:
    """An empty index.

    Raises:
        InputError: Faiss does not know the factory string, or cannot build it for this dimension or metric.
    """
    import faiss

    if few := _FEW.search(factory):
        raise _refusal(f"index.factory: '{factory}'", f"{few[0]} crashes Faiss, or never ends")
    kind = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    try:
        index = faiss.index_factory(dimension, factory, kind)
    except RuntimeError as error:
        raise _refusal(f"index.factory: '{factory}'", error) from None
    if "IDMap" in factory:
        raise _refusal(f"index.factory: '{factory}'", "it numbers vectors in its own way")
    if index.metric_type != kind:
        raise _refusal(f"index.factory: '{factory}'", "Faiss makes it for index.metric: l2 alone")
    return index


def _refusal(what: str, error: RuntimeError | str) -> InputError:
    reason = re.split(r"\.(?:cpp|h):\d+: ", str(error).strip())[-1]
    return InputError(
        f"{what}: {reason.strip()}",
        allowed="a faiss index_factory string, such as Flat, HNSW32 or IVF1024,Flat",
        fix="change index.factory or index.metric",
    )


def check(factory: str, metric: Metric, parameters: Parameters, dimension: int | None = None) -> None:
    """Refuse what Faiss cannot build, or search so, before there are vectors to build it for.

    Args:
        factory: As in `build`.
        metric: As in `build`.
        parameters: As in `tune`.
        dimension: The vectors' own, where that is known by now; else one that fits is tried.

    Raises:
        InputError: See `create` and `tune`.
    """
    if dimension is None or not 1 <= dimension <= MOST_DIMENSIONS:
        dimension = _least_dimension(factory)
    tune(create(factory, metric, dimension), factory, parameters)


def _least_dimension(factory: str) -> int:
    """The least that everything in a factory string takes: what LSHr allocates grows with its square."""
    return min(max(math.lcm(*map(int, _DIVISORS.findall(factory))), 1), MOST_DIMENSIONS)


def tune(index: Any, factory: str, parameters: Parameters) -> None:
    """Set an index's search parameters.

    Raises:
        InputError: It has no parameter of that name, or not with that value.
    """
    import faiss

    space = faiss.ParameterSpace()
    space.initialize(index)
    ranges = space.parameter_ranges
    known = [ranges.at(i).name for i in range(ranges.size())]
    lists = _lists(index)
    for name, value in parameters.items():
        try:
            space.set_index_parameter(index, name, value)
        except RuntimeError:
            raise InputError(
                f"search.parameters: '{name}' is no parameter of index.factory '{factory}'",
                allowed=", ".join(known) or "none: this index has nothing to set",
                fix="rename or remove it",
            ) from None
        if value < 1 or (name == "nprobe" and value > lists):
            raise InputError(
                f"search.parameters: '{name}' is {value} for index.factory '{factory}'",
                allowed=f"1 to {lists}, its lists" if name == "nprobe" else "1 or more",
                fix="change it",
            )


def _lists(index: Any) -> int:
    """How many inverted lists an index has; 0 if it is of another kind."""
    import faiss

    inverted = faiss.try_extract_index_ivf(index)
    return int(inverted.nlist) if inverted else 0


def write(index: Any, path: Path) -> None:
    """Write an index to a file."""
    import faiss

    faiss.write_index(index, str(path))


def to_bytes(index: Any) -> UInt8:
    """The bytes that `write` writes to a file, uint8 [bytes]."""
    import faiss

    stored: UInt8 = faiss.serialize_index(index)
    return stored


def read(stored: Path | UInt8, *, mapped: bool = True) -> Any:
    """Read an index.

    Args:
        stored: The file that `write` wrote, or its bytes, uint8 [bytes].
        mapped: Whether to leave on disk what the index's type can, until it is searched; for a file, also
            one whose bytes are memory-mapped.
    """
    import faiss

    if isinstance(stored, np.memmap):
        stored = Path(str(stored.filename))
    if isinstance(stored, Path):
        return faiss.read_index(str(stored), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    source, at = stored.data, 0

    def take(count: int) -> bytes:
        nonlocal at
        at += count
        return bytes(source[at - count : at])

    # as `deserialize_index`, without another copy of all bytes
    return faiss.read_index(faiss.PyCallbackIOReader(take))  # type: ignore[attr-defined]


def vectors_of(index: Any) -> Embeddings:
    """The vectors that a `Flat` index holds, in place."""
    import faiss

    stored = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
    return Embeddings((stored.reshape(index.ntotal, index.d),))


def search(
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
    """The best passages of each query, as far as the index finds them.

    Args:
        index: A faiss index of n vectors.
        queries: float32 [queries, dimension].
        top_k: Hits kept for each; fewer where the index has or finds fewer.
        ids: Arrow strings [n], the passages' ids.
        metric: What the index was built for.
        batch_size: Queries given to Faiss at once.
        bar: Told of every query searched.
        on_cpu: What `index` is a copy of, where that is on a GPU: such a one gives only so many hits, so this
            answers the queries for which equal scores straddle the last rank. None where `index` does.

    Returns:
        [queries, min(top_k, n)], ties in the contract's order, also where they straddle the last rank:
        of passages with equal scores those that come first in the order are kept, whichever Faiss found.
    """
    queries = for_metric(queries, metric)
    k, for_ties = min(top_k, index.ntotal), index if on_cpu is None else on_cpu
    passages = np.empty((len(queries), k), np.int64)
    scores = np.empty((len(queries), k), np.float32)
    for start in range(0, len(queries), batch_size):
        batch = slice(start, start + batch_size)
        passages[batch], scores[batch] = _search_batch(index, for_ties, queries[batch], k, ids, metric)
        bar.update(len(queries[batch]))
    return Ranking(passages, scores)


def find(index: Any, queries: Float32, k: int, metric: Metric) -> tuple[Int64, Float32]:
    """What Faiss finds: rows int64 [queries, k], -1 where there is none, and scores float32, falling."""
    scores, passages = index.search(queries, k)
    return passages, 0 - scores if metric == "l2" else scores


def _search_batch(
    index: Any, for_ties: Any, queries: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
) -> tuple[Int64, Float32]:
    """One batch. One hit more than k is fetched: if it scores as the last kept does, all that tie are."""
    passages, scores = _in_order(*find(index, queries, min(k + 1, index.ntotal), metric), ids)
    if scores.shape[1] > k:
        cut = (scores[:, k - 1] == scores[:, k]) & (passages[:, k] >= 0)
        for row in np.flatnonzero(cut):
            passages[row, :k], scores[row, :k] = _all_ties(for_ties, queries[row : row + 1], k, ids, metric)
    return passages[:, :k], scores[:, :k]


def _all_ties(
    index: Any, query: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
) -> tuple[Int64, Float32]:
    """The best k of one query whose k-th score many passages share: fetch until a lower score shows."""
    fetched = k + 1
    while True:
        fetched = min(2 * fetched, index.ntotal)
        passages, scores = find(index, query, fetched, metric)
        if fetched == index.ntotal or passages[0, -1] < 0 or scores[0, -1] < scores[0, k - 1]:
            passages, scores = _in_order(passages, scores, ids)
            return passages[0, :k], scores[0, :k]


def _in_order(passages: Int64, scores: Float32, ids: pa.ChunkedArray) -> tuple[Int64, Float32]:
    """Hits in the contract's order, each once: an NSG graph may give a passage twice."""
    rising = np.sort(passages, axis=1)
    twice = (rising[:, 1:] == rising[:, :-1]) & (rising[:, 1:] >= 0)
    for row in np.flatnonzero(twice.any(axis=1)):
        again = np.delete(np.arange(passages.shape[1]), np.unique(passages[row], return_index=True)[1])
        passages[row, again] = -1
    return sort_hits_by_id(passages, scores, ids)
