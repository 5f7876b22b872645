"""Searches by the definition: every score in float64, rounded to float32, then the contract's order."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from workplaces import BAR as BAR

from pipeline.core import Ranking
from pipeline.search import Metric
from pipeline.storage import unit_vectors

METRICS: tuple[Metric, ...] = ("inner_product", "cosine", "l2")


def ids(n: int) -> pa.ChunkedArray:
    """Ids whose order as strings is not that of their rows."""
    return pa.chunked_array([[str((row * 7919) % 100_003) for row in range(n)]])


def vector_scores(rows: np.ndarray, queries: np.ndarray, metric: Metric = "inner_product") -> np.ndarray:
    """Scores of all pairs, [queries, rows]."""
    if metric == "cosine":
        rows, queries = unit_vectors(rows), unit_vectors(queries)
    wide, asked = rows.astype(np.float64), queries.astype(np.float64)
    if metric == "l2":
        return np.stack([0 - ((wide - query) ** 2).sum(axis=1) for query in asked]).astype(np.float32)
    return (asked @ wide.T).astype(np.float32)


def best(scores: np.ndarray, k: int, names: pa.ChunkedArray | None = None) -> Ranking:
    """The best k of [queries, rows]: by score, then by id as a string, both descending."""
    scores = scores.astype(np.float32)
    named = ids(scores.shape[1]) if names is None else names
    by_id = np.argsort(np.array(named.to_pylist()))[::-1]
    order = by_id[np.argsort(-scores[:, by_id], axis=1, kind="stable")][:, :k]
    return Ranking(order, np.take_along_axis(scores, order, axis=1))


def best_documents(
    scores: np.ndarray, bounds: np.ndarray, k: int, how: str, names: pa.ChunkedArray | None = None
) -> Ranking:
    """The best k documents by their chunks' scores, [queries, chunks], with the best chunk of each."""
    reduce = {
        "max": np.max, "mean": lambda each: each.astype(np.float64).mean(), "first": lambda each: each[0],
    }  # fmt: skip
    spans = [slice(*span) for span in pairwise(bounds.tolist())]
    found = best(np.array([[reduce[how](row[span]) for span in spans] for row in scores]), k, names)
    chunks = np.array([[span.start + int(np.argmax(row[span])) for span in spans] for row in scores])
    return Ranking(found.passages, found.scores, np.take_along_axis(chunks, found.passages, axis=1))


def positive(found: Ranking) -> Ranking:
    """The hits with a score above 0, as of a search that finds no others."""
    is_hit = found.scores > 0
    return Ranking(np.where(is_hit, found.passages, -1), np.where(is_hit, found.scores, -np.inf))


def same(found: Ranking, expected: Ranking) -> bool:
    """Whether hits and scores are the expected ones, and chunks, where some are expected."""
    pairs = [(found.passages, expected.passages), (found.scores, expected.scores)]
    if expected.chunks is not None:
        pairs.append((found.chunks, expected.chunks))
    return all(np.array_equal(one, other) for one, other in pairs)
