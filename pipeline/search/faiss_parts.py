"""What a Faiss index is made of: how its parts are trained, and the bytes that they take."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from pipeline.core.records import Float32
from pipeline.search.faiss_library import faiss

log = logging.getLogger(__name__)

ADVISED_ROWS = 39  # vectors for each centroid, the default of Faiss's `min_points_per_centroid`
SLOW_ROWS = 10_000  # from which training may take minutes
OPQ_CODES = 256  # the codes of the quantizer that Faiss trains a rotation (OPQ) with, whatever follows it
WHOLE = 32  # bits of a component of a vector as Faiss keeps it


def train(index: faiss.Index, sample: Float32, factory: str) -> None:
    """Train an index; where the sample is small, that is said once, and not by Faiss for each quantizer."""
    advised = ADVISED_ROWS * least_training_rows(index)
    if len(sample) < advised:
        log.warning(
            "index.factory %s: trained on %s vectors; Faiss advises %s, %d for each centroid",
            *(factory, f"{len(sample):,}", f"{advised:,}", ADVISED_ROWS),
        )
    elif len(sample) >= SLOW_ROWS:
        log.info("training %s on %s vectors; Faiss tells no progress", factory, f"{len(sample):,}")
    quantizers = []  # Faiss does not own those of rotations
    for part in parts_of(index):
        for name in ("cp", "pq", "refine_pq", "rq"):
            if (parameters := getattr(part, name, None)) is not None:
                getattr(parameters, "cp", parameters).min_points_per_centroid = 1
        if isinstance(part, faiss.OPQMatrix):
            quantizers.append(faiss.ProductQuantizer(part.d_out, part.M, 8))
            quantizers[-1].cp.min_points_per_centroid = 1
            part.pq = quantizers[-1]
    index.train(sample)
    for part in parts_of(index):
        if isinstance(part, faiss.OPQMatrix):
            part.pq = None


def parts_of(index: faiss.Index) -> Iterator[Any]:
    """An index, the indexes that it is made of, and its transformations of vectors."""
    kind = faiss.downcast_index(index)  # does not own the index, which must stay while it is used
    actual: Any = kind
    yield actual
    if isinstance(kind, faiss.IndexPreTransform):
        yield from map(faiss.downcast_VectorTransform, map(actual.chain.at, range(actual.chain.size())))
    for name in ("quantizer", "index", "base_index", "refine_index", "storage"):
        if (part := getattr(actual, name, None)) is not None:
            yield from parts_of(part)


def least_training_rows(index: faiss.Index) -> int:
    """The fewest vectors that Faiss trains an index on: one for each centroid of its largest k-means.

    Those are the lists of an inverted file and the codes of quantizers. A PCA takes one for each component.
    For what is not known here, it is 1, and Faiss itself refuses to train the index.
    """
    needed = [1]
    for part in parts_of(index):
        needed += [each.ksub for name in ("pq", "refine_pq") if (each := getattr(part, name, None))]
        for additive in filter(None, (getattr(part, name, None) for name in ("rq", "prq"))):
            needed.append(1 << int(faiss.vector_to_array(additive.nbits).max()))
        if isinstance(part, faiss.IndexIVF):
            quantizer = faiss.downcast_index(part.quantizer)
            if not isinstance(quantizer, faiss.MultiIndexQuantizer):  # makes its lists of few centroids
                needed.append(part.nlist)
        elif isinstance(part, faiss.OPQMatrix):
            needed.append(OPQ_CODES)
        elif isinstance(part, faiss.PCAMatrix):
            needed.append(part.d_out)
    return max(needed)


class IndexSize(NamedTuple):
    """Bytes of an index."""

    passage: float  # of each vector: its code, and its links in a graph
    ids: int = 0  # of each vector besides: its number in an inverted list
    codebooks: int = 0  # of centroids, rotations and ranges, however many vectors there are


def size_of(index: faiss.Index, bits: int) -> IndexSize:
    """The size of an index, whose whole vectors have so many bits for each component."""
    kind = faiss.downcast_index(index)
    actual: Any = kind  # Faiss's stubs lack many of its attributes
    if isinstance(kind, faiss.IndexPreTransform):
        steps = [faiss.downcast_VectorTransform(actual.chain.at(n)) for n in range(actual.chain.size())]
        size = size_of(actual.index, bits)
        return size._replace(codebooks=size.codebooks + sum(map(_transform_bytes, steps)))
    if isinstance(kind, faiss.IndexRefine):
        base, exact = size_of(actual.base_index, bits), size_of(actual.refine_index, bits)
        return IndexSize(base.passage + exact.passage, base.ids, base.codebooks + exact.codebooks)
    if isinstance(kind, faiss.IndexHNSW):
        storage, per_level = size_of(actual.storage, bits), actual.hnsw.nb_neighbors(1)
        links = actual.hnsw.nb_neighbors(0) + per_level / (per_level - 1)  # a level has 1/M of that below
        return IndexSize(storage.passage + 4 * links + 12, storage.ids, storage.codebooks)
    if isinstance(kind, faiss.IndexNSG):
        storage = size_of(actual.storage, bits)
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
    whole = isinstance(kind, (faiss.IndexFlat, faiss.IndexIVFFlat)) and bits != WHOLE
    code = math.ceil(actual.d * bits / 8) if whole else actual.code_size
    if isinstance(kind, faiss.IndexIVF):
        coarse = size_of(actual.quantizer, WHOLE)
        return IndexSize(code, 8, round((coarse.passage + 8) * actual.nlist) + coarse.codebooks + codebooks)
    return IndexSize(code, 0, codebooks)


def _transform_bytes(step: Any) -> int:
    """Of a transformation of vectors, once it is trained."""
    if isinstance(step, faiss.PCAMatrix):  # with the means, the variances and all components
        return 4 * (step.d_in * step.d_out + step.d_out + 2 * step.d_in + step.d_in**2)
    return 4 * step.d_in * step.d_out if isinstance(step, faiss.LinearTransform) else 0
