"""Faiss indexes: checked, built from stored vectors, opened, and searched with ties in the contract's order.

Faiss orders hits by score, and equal scores in its own way. So one hit more than k is fetched. If its score
equals that of the k-th, more passages may tie with them, and the query is searched again for twice as many
hits, until a lower score appears or no passage is left. Then all hits are sorted, and the first k are kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.config import FLAT, IndexConfig, SearchConfig
from pipeline.core.display import Bar, counted
from pipeline.core.errors import InputError
from pipeline.core.order import sort_hits
from pipeline.core.records import Embeddings, Float32, Int64, Ranking, UInt8
from pipeline.search import exact
from pipeline.search.candidates import empty_ranking, set_rows
from pipeline.search.exact import ExactSearcher
from pipeline.search.faiss_library import faiss
from pipeline.search.faiss_parts import WHOLE, IndexSize, least_training_rows, size_of, train
from pipeline.search.quantized import QuantizedSearcher, QuantizedVectors
from pipeline.search.scoring import Metric, for_metric
from pipeline.storage import vector_shards

ADDED_VECTORS = 65536  # vectors read and added at once
TRAIN_ROWS, ROWS_PER_LIST = 65536, 64  # least size of the training sample, and its size for each list
MAX_DIMENSION = 65536  # that a factory string is tried with
_DIVISORS = re.compile(r"(?:Q|\+|IMI|Panorama)(\d+)")  # numbers in a factory that divide the dimension
_TOO_FEW = re.compile(r"(?:IVF0+|HNSW0*[01]|NSG0*[0-3])(?!\d)")  # lists or links that make Faiss crash

Parameters = Mapping[str, int | float]


def build_index(
    embeddings: Embeddings, factory: str, metric: Metric, bar: Bar, *, seed: int = 0
) -> faiss.Index:
    """The index of a Faiss `index_factory` string; it does not depend on how the vectors are sharded.

    They are read a chunk at a time, and the number of a hit is its row. `bar` counts vectors. `seed` is that
    of the random sample that an index is trained on: 64 vectors for each list, at least 65,536.
    """
    index = create_index(factory, metric, embeddings.dimension)
    n = len(embeddings)
    chunk = n if "NSG" in factory else ADDED_VECTORS  # an NSG graph is built from all vectors at once
    try:
        if not index.is_trained:
            wanted = max(TRAIN_ROWS, ROWS_PER_LIST * count_lists(index))
            drawn = np.random.default_rng(seed).choice(n, min(wanted, n), replace=False)
            train(index, for_metric(vector_shards.gather_rows(embeddings, np.sort(drawn)), metric), factory)
        for start in range(0, n, chunk):
            stop = min(start + chunk, n)
            rows = for_metric(vector_shards.read_rows(embeddings, start, stop), metric)
            index.add(np.ascontiguousarray(rows))
            vector_shards.release_memory(embeddings, start, stop)
            bar.update(stop - start)
    except RuntimeError as error:
        raise _refusal(f"index.factory: '{factory}' with {n:,} vectors", error) from None
    return index


def create_index(factory: str, metric: Metric, dimension: int) -> faiss.Index:
    """An empty index; refused if Faiss does not know the factory or cannot build it for these vectors."""
    too_few = _TOO_FEW.search(factory)
    if too_few:
        raise _refusal(f"index.factory: '{factory}'", f"{too_few[0]} makes Faiss crash or never end")
    kind = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    try:
        index = faiss.index_factory(dimension, factory, kind)
    except RuntimeError as error:
        raise _refusal(f"index.factory: '{factory}'", error) from None
    if "IDMap" in factory:
        raise _refusal(f"index.factory: '{factory}'", "IDMap replaces the row numbers that hits are found by")
    if index.metric_type != kind:
        raise _refusal(f"index.factory: '{factory}'", "Faiss builds it for index.metric: l2 only")
    return index


def _refusal(what: str, error: RuntimeError | str) -> InputError:
    reason = re.split(r"\.(?:cpp|h):\d+: ", str(error).strip())[-1]
    return InputError(
        f"{what}: {reason.strip()}",
        allowed="a faiss index_factory string, such as Flat, HNSW32 or IVF1024,Flat",
        fix="change index.factory or index.metric",
    )


def check_index(factory: str, metric: Metric, parameters: Parameters, dimension: int | None = None) -> None:
    """Refuse an index that Faiss cannot build, or parameters that it lacks, before anything is encoded.

    If the dimension of the vectors is not known yet (None), the least one that fits is tried.
    """
    index = create_index(factory, metric, _dimension_to_try(factory, dimension))
    set_search_parameters(index, factory, parameters)


def _dimension_to_try(factory: str, dimension: int | None) -> int:
    """The dimension itself, or the least one that fits the factory."""
    if dimension is not None and 1 <= dimension <= MAX_DIMENSION:
        return dimension
    least = math.lcm(*map(int, _DIVISORS.findall(factory)))  # LSHr allocates memory by the square of it
    return min(max(least, 1), MAX_DIMENSION)


def check_size(factory: str, metric: Metric, dimension: int | None, vectors: int, shards: int) -> None:
    """Refuse an index that has too few vectors to be trained or cut, before they are encoded.

    Arguments are as of `check_index` and `build_index`; `vectors` is how many there are, and `shards` how
    many parts they are cut into, each with an index of its own.
    """
    if shards > vectors:
        raise InputError(
            f"index.shards: {shards:,}, and the collection has {counted(vectors, 'passage')}",
            allowed=f"1 to {vectors:,}",
            fix="lower it",
        )
    needed = least_training_rows(create_index(factory, metric, _dimension_to_try(factory, dimension)))
    available = vectors // shards
    if available < needed:
        where = f"a shard has {available:,}" if shards > 1 else f"the collection has {available:,}"
        raise InputError(
            f"index.factory: '{factory}' is trained on {needed:,} vectors or more, and {where}",
            allowed="an index of fewer lists or codes, or one that is not trained, such as HNSW32 or Flat",
            fix="change index.factory" + (" or index.shards" if shards > 1 else ""),
        )


BITS = {"fp32": WHOLE, "fp16": 16, "int8": 8, "binary": 1}
"""Of a component of a vector, by `model.vector_precision`."""


def index_size(factory: str, metric: Metric, dimension: int, precision: str = "fp32") -> IndexSize:
    """The size of an index of vectors of `dimension` components, before it is built.

    In fp32 it is that of the file that Faiss writes. Faiss keeps vectors of another precision in fp32: their
    size is that of an index which keeps them in theirs.
    """
    if factory == FLAT:  # the vectors alone
        return IndexSize(math.ceil(dimension * BITS[precision] / 8))
    return size_of(create_index(factory, metric, dimension), BITS[precision])


def set_search_parameters(index: faiss.Index, factory: str, parameters: Parameters) -> None:
    """Set an index's search parameters; names and values that it does not have are refused."""
    space = faiss.ParameterSpace()
    space.initialize(index)
    ranges = space.parameter_ranges
    known = [ranges.at(i).name for i in range(ranges.size())]
    lists = count_lists(index)
    for name, value in parameters.items():
        try:
            space.set_index_parameter(index, name, value)
        except RuntimeError:
            raise InputError(
                f"search.parameters: '{name}' is not a parameter of index.factory '{factory}'",
                allowed=", ".join(known) or "none, as this index has no search parameters",
                fix="rename or remove it",
            ) from None
        if value % 1 and not name.startswith("k_factor"):
            raise InputError(
                f"search.parameters: '{name}' is {value}", allowed="a whole number", fix="change the value"
            )
        if value < 1 or (name == "nprobe" and value > lists):
            raise InputError(
                f"search.parameters: '{name}' is {value} for index.factory '{factory}'",
                allowed=f"1 to {lists}, the number of lists" if name == "nprobe" else "1 or more",
                fix="change the value",
            )


def count_lists(index: faiss.Index) -> int:
    """Number of inverted lists of an index; 0 for an index of another kind."""
    inverted = faiss.try_extract_index_ivf(index)
    return int(inverted.nlist) if inverted else 0


def read_index(stored: Path | UInt8, *, mapped: bool = True) -> faiss.Index:
    """Read an index from its file, or from the bytes of that, uint8 [bytes].

    With `mapped`, what the type of index allows is left on disk until it is searched; also for a file given
    as memory-mapped bytes.
    """
    if isinstance(stored, np.memmap):
        stored = Path(str(stored.filename))
    if not isinstance(stored, Path):
        return _read_bytes(stored)
    try:
        return faiss.read_index(str(stored), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    except RuntimeError as error:
        raise InputError(
            f"{stored.parent} is not a complete index: {str(error).splitlines()[-1]}",
            fix="remove that folder, or run again with --fresh",
        ) from None


def _read_bytes(stored: UInt8) -> faiss.Index:
    """As `faiss.deserialize_index`, without another copy of all bytes."""
    source, position = stored.data, 0

    def take(count: int) -> bytes:
        nonlocal position
        position += count
        return bytes(source[position - count : position])

    return faiss.read_index(faiss.PyCallbackIOReader(take))  # type: ignore[attr-defined]


class ApproximateSearcher:
    """Search of an index by Faiss; its arguments are as of `open_searcher`."""

    by_products = False

    def __init__(self, index: faiss.Index, metric: Metric, ids: pa.ChunkedArray, batch_size: int) -> None:
        self.index, self.metric, self.ids, self.batch_size = index, metric, ids, batch_size
        self.count = index.ntotal

    def search(self, queries: Float32, k: int, bar: Bar) -> Ranking:
        """The best passages of each query that the index finds, with padding where these are fewer than k."""
        queries = for_metric(queries, self.metric)
        k = min(k, self.count)
        ranking = empty_ranking(len(queries), k)
        for start in range(0, len(queries), self.batch_size):
            batch = slice(start, start + self.batch_size)
            set_rows(ranking, batch, self._search_batch(queries[batch], k))
            bar.update(len(queries[batch]))
        return ranking

    def _nearest(self, queries: Float32, k: int) -> tuple[Int64, Float32]:
        """The hits of Faiss itself: rows int64 [queries, k], -1 for padding, and scores float32, falling."""
        scores, passages = self.index.search(queries, k)
        return passages, 0 - scores if self.metric == "l2" else scores

    def _search_batch(self, queries: Float32, k: int) -> Ranking:
        """The best k of one batch of queries."""
        passages, scores = self._in_order(*self._nearest(queries, min(k + 1, self.count)))
        if scores.shape[1] > k:
            ties_cut = (scores[:, k - 1] == scores[:, k]) & (passages[:, k] >= 0)
            for row in np.flatnonzero(ties_cut):
                passages[row, :k], scores[row, :k] = self._with_all_ties(queries[row : row + 1], k)
        return Ranking(passages[:, :k], scores[:, :k])

    def _with_all_ties(self, query: Float32, k: int) -> tuple[Int64, Float32]:
        """The best k of one query, if other passages share its k-th score."""
        fetched = k + 1
        while True:
            fetched = min(2 * fetched, self.count)
            passages, scores = self._nearest(query, fetched)
            if fetched == self.count or passages[0, -1] < 0 or scores[0, -1] < scores[0, k - 1]:
                passages, scores = self._in_order(passages, scores)
                return passages[0, :k], scores[0, :k]

    def _in_order(self, passages: Int64, scores: Float32) -> tuple[Int64, Float32]:
        """Hits in the contract's order without duplicates: an NSG graph may return a passage twice."""
        ascending = np.sort(passages, axis=1)
        duplicate = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
        for row in np.flatnonzero(duplicate.any(axis=1)):
            _, first = np.unique(passages[row], return_index=True)
            passages[row, np.delete(np.arange(passages.shape[1]), first)] = -1
        return sort_hits(passages, scores, self.ids)


Searcher = ExactSearcher | ApproximateSearcher | QuantizedSearcher
"""An index, or the stored vectors themselves, opened to find the best passages of queries.

Each has `search(queries, k, bar)`, which returns the best k passages of queries float32 [queries, dimension]
in the contract's order. `by_products` tells whether that is the search of an `ExactSearcher`.
"""


def open_searcher(
    index: IndexConfig,
    search: SearchConfig,
    stored: Path | UInt8 | Embeddings | QuantizedVectors,
    ids: pa.ChunkedArray,
    queries: Float32 | None = None,
) -> Searcher:
    """The searcher of stored vectors, or of an index, given as its file or the bytes of that.

    `ids` are the passages' ids, Arrow strings. `queries`, float32 [queries, dimension], are all that will be
    searched, if these are known. They must fit, and what their search uses is compiled here, so that no
    measured time holds that.
    """
    searcher: Searcher
    if isinstance(stored, QuantizedVectors):
        searcher = QuantizedSearcher(search, stored, ids)
        count, dimension = searcher.count, stored.dimension
    elif isinstance(stored, Embeddings):
        searcher = ExactSearcher(stored, ids, index.metric, search.memory_mb, search.device)
        count, dimension = len(stored), stored.dimension
    else:
        # an index that is compared is read into memory, so that the disk has no part in its speed
        opened = read_index(stored, mapped=index.factory == FLAT or not search.against_exact)
        count, dimension = opened.ntotal, opened.d
        if index.factory == FLAT:
            assert isinstance(opened, faiss.IndexFlat)
            rows = faiss.rev_swig_ptr(opened.get_xb(), count * dimension).reshape(count, dimension)  # no copy
            scaled = index.metric == "cosine"
            metric = "inner_product" if scaled else index.metric
            how = search.memory_mb, search.device, scaled, opened
            searcher = ExactSearcher(Embeddings((rows,)), ids, metric, *how)
        else:
            set_search_parameters(opened, index.factory, search.parameters)
            searcher = ApproximateSearcher(opened, index.metric, ids, search.batch_size)
    if queries is not None:
        vector_shards.check_counts(count, dimension, len(ids), queries)
        if searcher.by_products and exact.filter_pays(queries, count):
            exact.compile_filter(dimension)
    return searcher
