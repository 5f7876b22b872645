"""The size of an index before it is built: what a passage takes, and what is there however many there are."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from pipeline.search.faiss_index import create_index
from pipeline.search.faiss_library import faiss
from pipeline.search.scoring import Metric

BITS = {"fp32": 32, "fp16": 16, "int8": 8, "binary": 1}
"""Of a component of a vector, by `model.vector_precision`."""


class IndexSize(NamedTuple):
    """Bytes of an index."""

    passage: float  # of each vector: its code, and its links in a graph
    ids: int = 0  # of each vector besides: its number in an inverted list
    codebooks: int = 0  # of centroids, rotations and ranges, however many vectors there are

    def total(self, count: int) -> int:
        """Bytes of an index of `count` vectors."""
        return round(count * (self.passage + self.ids) + self.codebooks)


def index_size(factory: str, metric: Metric, dimension: int, precision: str = "fp32") -> IndexSize:
    """The size of an index of vectors of `dimension` components.

    In fp32 it is that of the file that Faiss writes. Faiss keeps vectors of another precision in fp32: their
    size is that of an index which keeps them in theirs.
    """
    return _size(create_index(factory, metric, dimension), BITS[precision])


def _size(index: faiss.Index, bits: int) -> IndexSize:
    """The size of an index, whose whole vectors have so many bits for each component."""
    kind = faiss.downcast_index(index)
    actual: Any = kind  # Faiss's stubs lack many of its attributes
    if isinstance(kind, faiss.IndexPreTransform):
        steps = [faiss.downcast_VectorTransform(actual.chain.at(n)) for n in range(actual.chain.size())]
        size = _size(actual.index, bits)
        return size._replace(codebooks=size.codebooks + sum(map(_transform_bytes, steps)))
    if isinstance(kind, faiss.IndexRefine):
        base, exact = _size(actual.base_index, bits), _size(actual.refine_index, bits)
        return IndexSize(base.passage + exact.passage, base.ids, base.codebooks + exact.codebooks)
    if isinstance(kind, faiss.IndexHNSW):
        storage, per_level = _size(actual.storage, bits), actual.hnsw.nb_neighbors(1)
        links = actual.hnsw.nb_neighbors(0) + per_level / (per_level - 1)  # a level has 1/M of that below
        return IndexSize(storage.passage + 4 * links + 12, storage.ids, storage.codebooks)
    if isinstance(kind, faiss.IndexNSG):
        storage = _size(actual.storage, bits)
        return storage._replace(passage=storage.passage + 4 * actual.nsg.R)
    codebooks = 0  # of its own quantizer, once it is trained
    if hasattr(actual, "pq"):
        codebooks = int(4 * actual.pq.centroids.size())
    elif hasattr(actual, "aq"):
        codebooks = int(4 * actual.aq.d * actual.aq.total_codebook_size)
    elif hasattr(actual, "sq"):
        ranges = faiss.ScalarQuantizer.QT_8bit, faiss.ScalarQuantizer.QT_6bit, faiss.ScalarQuantizer.QT_4bit
        codebooks = 8 * actual.d if actual.sq.qtype in ranges else 0
    elif getattr(actual, "rotate_data", False):  # LSH
        codebooks = 4 * actual.d * actual.nbits
    if isinstance(kind, faiss.MultiIndexQuantizer):
        return IndexSize(0, 0, codebooks)
    whole = isinstance(kind, (faiss.IndexFlat, faiss.IndexIVFFlat)) and bits != BITS["fp32"]
    code = math.ceil(actual.d * bits / 8) if whole else actual.code_size
    if isinstance(kind, faiss.IndexIVF):
        lists = _size(actual.quantizer, BITS["fp32"]).total(actual.nlist) + 8 * actual.nlist
        return IndexSize(code, 8, lists + codebooks)
    return IndexSize(code, 0, codebooks)


def _transform_bytes(step: Any) -> int:
    """Of a transformation of vectors, once it is trained."""
    if isinstance(step, faiss.PCAMatrix):  # with the means, the variances and all components
        return 4 * (step.d_in * step.d_out + step.d_out + 2 * step.d_in + step.d_in**2)
    return 4 * step.d_in * step.d_out if isinstance(step, faiss.LinearTransform) else 0
