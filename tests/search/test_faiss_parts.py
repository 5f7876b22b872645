"""The size of an index is known before it is built: what a passage takes, and codebooks beside it."""

import faiss
import numpy as np
import pytest

from pipeline.search import index_size

FACTORIES = (
    "Flat SQ8 SQ4 SQfp16 PQ8x4 PQ8x4fs RQ4x4 LSHrt HNSW16 HNSW16,SQ8 RR32,Flat IVF16,Flat IVF16,PQ8x4np "
    "IVF16,SQ8 IVF16_HNSW8,Flat PCA16,Flat PCA16,IVF16,SQ8 OPQ8_32,PQ8x4np PQ8x4np,RFlat IVF16,PQ8x4fs,RFlat"
)  # `np`: no polysemous training, which takes seconds and no bytes
VECTORS = np.random.default_rng(0).standard_normal((6000, 64), np.float32)


@pytest.mark.parametrize("factory", FACTORIES.split())
def test_it_is_that_of_the_file_that_faiss_writes(factory: str) -> None:
    index = faiss.index_factory(64, factory)
    index.train(VECTORS[:700])
    sizes = []
    for part in (VECTORS[:2000], VECTORS[2000:]):
        index.add(part)
        sizes.append(len(faiss.serialize_index(index)))
    size, each = index_size(factory, "l2", 64), (sizes[1] - sizes[0]) / 4000
    assert size.passage + size.ids == pytest.approx(each, rel=0.01)
    assert size.codebooks == pytest.approx(sizes[0] - 2000 * each, abs=2000)


def test_vectors_of_other_precisions_take_what_their_components_take() -> None:
    sizes = [index_size("Flat", "l2", 100, each).passage for each in ("fp32", "fp16", "int8", "binary")]
    assert sizes == [400, 200, 100, 13]
    assert index_size("IVF16,Flat", "l2", 100, "fp16")[:2] == (200, 8)
    assert index_size("PQ20", "l2", 100, "fp16").passage == 20


def test_a_graph_without_a_fixed_number_of_links_takes_no_more_than_it_may() -> None:
    index = faiss.index_factory(64, "NSG16")
    index.add(VECTORS[:2000])
    assert 0.9 < len(faiss.serialize_index(index)) / (2000 * index_size("NSG16", "l2", 64).passage) <= 1
