"""What a Faiss index takes before it is built: bytes, and the time of its matrix products."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

from pipeline.config import FLAT, IndexConfig
from pipeline.search import faiss_index
from pipeline.search.faiss_library import faiss
from pipeline.search.scoring import Metric

IVF_ROUNDS, CODE_ROUNDS = 10, 25  # of k-means: of an inverted file's lists, and of a quantizer's codes
CODES, GRAPHS = 256, ("HNSW", "NSG")
WRITTEN = 2.5e8  # bytes of an index that are copied, written and checked in a second


def index_bytes(factory: str, metric: Metric, dimension: int, count: int) -> int:
    """The size of an index of `count` vectors, in memory and on disk."""
    index = faiss_index.create_index(factory, metric, dimension)
    return int(count * _vector_bytes(index) + 4 * faiss_index.count_lists(index) * dimension)


def _vector_bytes(index: faiss.Index) -> int:
    """Bytes of one vector: its code, its number in an inverted list, its links in a graph."""
    actual = faiss.downcast_index(index)
    graph: Any = actual  # Faiss's stubs lack its attributes
    if isinstance(actual, faiss.IndexPreTransform):
        return _vector_bytes(actual.index)
    if isinstance(actual, faiss.IndexRefine):
        return _vector_bytes(actual.base_index) + _vector_bytes(actual.refine_index)
    if isinstance(actual, faiss.IndexIVF):
        return int(actual.code_size) + 8
    if isinstance(actual, faiss.IndexHNSW):  # on the lowest level twice M links, above that few
        return _vector_bytes(actual.storage) + 4 * (int(graph.hnsw.nb_neighbors(0)) + 2) + 12
    if isinstance(actual, faiss.IndexNSG):
        return _vector_bytes(graph.storage) + 4 * int(graph.nsg.R)
    return int(actual.sa_code_size())


def build_seconds(index: IndexConfig, dimension: int, count: int) -> float | None:
    """How long an index takes to train and fill, by its matrix products; None for a graph, which has none."""
    size = index_bytes(index.factory, index.metric, dimension, count)
    if index.factory == FLAT:
        return size / WRITTEN
    if any(graph in index.factory for graph in GRAPHS):
        return None
    lists = faiss_index.count_lists(faiss_index.create_index(index.factory, index.metric, dimension))
    count_of_shard = count // index.shards
    wanted = index.train_rows or max(faiss_index.TRAIN_ROWS, faiss_index.ROWS_PER_LIST * lists)
    trained = min(wanted, count_of_shard)
    rows = index.shards * (trained * IVF_ROUNDS + count_of_shard) * lists
    if "PQ" in index.factory or "OPQ" in index.factory:
        rows += index.shards * (trained * CODE_ROUNDS + count_of_shard) * CODES
    return 2.0 * rows * dimension / product_rate() + size / WRITTEN


@cache
def product_rate() -> float:
    """Operations of float32 products that this processor does in a second, on all cores."""
    left, right = np.ones((2048, 384), np.float32), np.ones((384, 2048), np.float32)
    seconds = []
    for _ in range(4):
        started = time.perf_counter()
        left @ right
        seconds.append(time.perf_counter() - started)
    return 2.0 * left.size * right.shape[1] / min(seconds)
