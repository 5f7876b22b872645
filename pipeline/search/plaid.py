"""An approximate index of token vectors by the package fast-plaid, and its search.

PLAID (Santhanam et al., *PLAID: An Efficient Engine for Late Interaction Retrieval*, CIKM 2022) finds
centroids of all token vectors by k-means. Of each token vector it keeps the number of the nearest centroid,
and the difference to it in a few bits a number. A search takes the passages that have a token at one of the
centroids nearest to each query token (`n_ivf_probe`), scores them by their centroids alone, and the best of
those (a quarter of `n_full_scores`) by what was kept of their vectors. Those vectors are scaled to length 1,
so all must have had it.

The package is built for one version of PyTorch, and with another one it ends the process: see
`pipeline.retrievers.plaid_index.check_installed`.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipeline.config import PlaidSettings, SearchConfig
from pipeline.config.plaid import parameters_of, scored_passages
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.core.records import Float32, Int64, Ranking, TokenEmbeddings
from pipeline.search import timing
from pipeline.search.documents import Documents, empty_ranking, rank_by_search
from pipeline.search.maxsim_pairs import PairScorer, divisors_of
from pipeline.search.rescoring import rank_candidates
from pipeline.storage import vector_shards

if TYPE_CHECKING:
    import torch

CHECKED = 1 << 16  # token vectors whose length is looked at together
LENGTH_TOLERANCE = 0.01  # of length 1: float16 rounds by less
LEAST_TOKENS = 10  # of which fast-plaid takes a twentieth, rounded, to learn what to keep
LOCK = "plaid.lock"  # a file of fast-plaid's that holds nothing


def build_index(passages: TokenEmbeddings, settings: PlaidSettings, folder: Path) -> int:
    """Make an index in an empty folder; returns the number of centroids.

    fast-plaid draws a sample of the passages for k-means, which it holds in memory as float16. The other
    vectors it takes from their memory-mapped files, some passages at a time.
    """
    _check_vectors(passages)
    from fast_plaid.search import FastPlaid

    with FastPlaid(index=str(folder), device="cpu") as index:
        index.create(
            documents_embeddings=_tensors(passages),
            nbits=settings.bits,
            kmeans_niters=settings.kmeans_iterations,
            seed=settings.seed,
            start_from_scratch=0,  # else a small index keeps its vectors, for `update`, which is not used
        )
    (folder / LOCK).unlink(missing_ok=True)
    return _count_centroids(folder)


def _count_centroids(folder: Path) -> int:
    return len(np.load(folder / "centroids.npy", mmap_mode="r", allow_pickle=False))


def _check_vectors(passages: TokenEmbeddings) -> None:
    """Refuse token vectors that fast-plaid cannot keep."""
    vectors = passages.vectors
    if len(vectors) < LEAST_TOKENS:
        raise InputError(
            f"index.factory: PLAID is trained on {LEAST_TOKENS} token vectors or more, and the passages have "
            f"{len(vectors)}",
            fix="leave out index.factory",
        )
    if vectors.dimension % 8:
        raise InputError(
            f"index.factory: PLAID: token vectors have {vectors.dimension} dimensions",
            allowed="a multiple of 8",
            fix="leave out index.factory, or take another model",
        )
    for start in range(0, len(vectors), CHECKED):
        stop = min(start + CHECKED, len(vectors))
        lengths = np.linalg.norm(vector_shards.read_rows(vectors, start, stop), axis=1)
        vector_shards.release_memory(vectors, start, stop)
        wrong = np.abs(lengths - 1) > LENGTH_TOLERANCE
        if wrong.any():
            raise InputError(
                f"index.factory: PLAID: a token vector of the passages has length {lengths[wrong][0]:.4g}",
                allowed="vectors of length 1, to which fast-plaid scales what it keeps of them",
                fix="leave out index.factory, or scale the vectors",
            )


def _tensors(texts: TokenEmbeddings) -> list[torch.Tensor]:
    """The token vectors of each text, which stay where they are."""
    import torch

    bounds, before = texts.bounds, 0
    found: list[torch.Tensor] = []
    for shard in texts.vectors.shards:
        first, last = np.searchsorted(bounds, (before, before + len(shard)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the file is read-only, and nobody writes to it
            tensor = torch.from_numpy(np.asarray(shard))
        found += torch.split(tensor, np.diff(bounds[first : last + 1]).tolist())
        before += len(shard)
    return found


class PlaidSearcher:
    """An open index, to be searched for some queries; see `open_searcher`."""

    def __init__(
        self,
        index: Any,
        centroids: int,
        config: SearchConfig,
        queries: TokenEmbeddings,
        mean: bool,
        passages: TokenEmbeddings | None,
    ) -> None:
        self.index, self.config = index, config
        self.queries = _tensors(queries)
        self.divisors = divisors_of(queries.bounds, mean)
        given = parameters_of(config)
        self.parameters = {**given, "n_ivf_probe": min(given["n_ivf_probe"], centroids)}
        self.score_pairs: PairScorer | None = None
        if passages is not None:
            vectors = vector_shards.read_rows(queries.vectors, 0, len(queries.vectors))
            self.score_pairs = PairScorer(passages, vectors, queries.bounds, mean)

    def search(self, ids: pa.ChunkedArray, bar: Bar, documents: Documents | None = None) -> Ranking:
        """The best passages of all queries, or the best documents where the vectors are those of chunks.

        Args:
            ids: Arrow strings, the ids of what is ranked.
            bar: Counts queries.
            documents: Those that are ranked.
        """
        everything, top_k = np.arange(len(self.queries)), self.config.top_k
        if documents is None:
            return self._best(everything, min(top_k, len(ids)), ids, bar)
        chunk_ids = documents.chunk_ids

        def find(chosen: Int64, k: int, bar: Bar) -> Ranking:
            return self._best(chosen, k, chunk_ids, bar)

        return rank_by_search(find, len(everything), documents, top_k, ids, bar)

    def measure(self) -> dict[str, Any]:
        """`timing.time_searches`, with the scores by the stored vectors if they are asked for."""
        everything = np.arange(len(self.queries))
        k = self.config.top_k

        def search(chosen: Int64) -> None:
            self._rescored(chosen, *self._nearest(chosen, k * (self.config.rescore or 1)))

        batch = self.config.batch_size
        return timing.time_searches(search, everything, batch, on_one_thread=_torch_on_one_thread)

    def _best(self, chosen: Int64, k: int, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """The best k passages or chunks of some queries, given by their numbers.

        All that fast-plaid has scored are taken, so that the contract's order decides among equal scores.
        """
        ranking = empty_ranking(len(chosen), k, None)
        for start in range(0, len(chosen), self.config.batch_size):
            batch = slice(start, start + self.config.batch_size)
            found = rank_candidates(
                *self._nearest(chosen[batch], scored_passages(self.config)),
                k * (self.config.rescore or 1),
                ids,
            )
            scores = self._rescored(chosen[batch], found.passages, found.scores)
            best = rank_candidates(found.passages, scores, k, ids)
            width = best.passages.shape[1]
            ranking.passages[batch, :width], ranking.scores[batch, :width] = best.passages, best.scores
            bar.update(len(best.passages))
        return ranking

    def _nearest(self, chosen: Int64, k: int) -> tuple[Int64, Float32]:
        """What fast-plaid finds: rows int64 [queries, hits], -1 for padding, and scores float32."""
        import torch

        queries, threads = [self.queries[number] for number in chosen], torch.get_num_threads()
        found = self.index.search(
            queries, top_k=k, show_progress=False, n_processes=threads, **self.parameters
        )
        shape = (len(found), max(map(len, found), default=0))
        rows, scores = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        for number, hits in enumerate(found):
            if hits:
                rows[number, : len(hits)], scores[number, : len(hits)] = zip(*hits, strict=True)
        return rows, scores / self.divisors[chosen, None]

    def _rescored(self, chosen: Int64, rows: Int64, scores: Float32) -> Float32:
        """The exact scores of hits if they are asked for; arguments and result as of `_nearest`."""
        if self.score_pairs is None:
            return scores
        query, column = np.nonzero(rows >= 0)
        exact = np.full_like(scores, -np.inf)
        exact[query, column] = self.score_pairs(rows[query, column], chosen[query])
        return exact


@contextlib.contextmanager
def open_searcher(
    folder: Path,
    files: Sequence[str],
    config: SearchConfig,
    queries: TokenEmbeddings,
    mean: bool,
    passages: TokenEmbeddings | None,
) -> Iterator[PlaidSearcher]:
    """Open a finished index of n passages for some queries.

    fast-plaid makes a lock file beside the files that it opens. So it is given a folder of links to them, and
    leaves the index as it is.

    Args:
        folder: Where the index is.
        files: The names of its files.
        config: The parameters of the search.
        queries: Token vectors of the queries.
        mean: Whether a score is the mean over the query's tokens, not the sum.
        passages: Token vectors of the passages, if the best hits are scored by them.
    """
    from fast_plaid.search import FastPlaid

    with tempfile.TemporaryDirectory() as links:
        for name in files:
            Path(links, name).symlink_to((folder / name).absolute())
        try:
            index = FastPlaid(index=links, device="cpu")
            centroids = _count_centroids(folder)
        except (LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"{folder} is not a complete index: {str(error).splitlines()[0]}",
                fix="remove that folder, or run again with --fresh",
            ) from error
        with index:
            yield PlaidSearcher(index, centroids, config, queries, mean, passages)


@contextlib.contextmanager
def _torch_on_one_thread() -> Iterator[int]:
    """See `timing.time_searches`."""
    import torch

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        yield threads
    finally:
        torch.set_num_threads(threads)
