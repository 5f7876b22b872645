"""The size of an index is known before it is built."""

import faiss
import numpy as np
import pytest

from pipeline.search import index_bytes

FACTORIES = "Flat SQ8 PQ8x4 IVF16,Flat IVF16,PQ8x4 HNSW16 PCA16,Flat PQ8x4,RFlat PCA16,IVF16,SQ8 NSG16"


@pytest.mark.parametrize("factory", FACTORIES.split())
def test_it_is_that_of_the_file(factory: str) -> None:
    vectors = np.random.default_rng(0).standard_normal((2, 2000, 32), np.float32)
    sizes = []
    for rows in (vectors[0], vectors.reshape(-1, 32)):
        index = faiss.index_factory(32, factory)
        index.train(vectors[0])
        index.add(rows)
        sizes.append(len(faiss.serialize_index(index)))
    foreseen = [index_bytes(factory, "l2", 32, count) for count in (2000, 4000)]
    assert foreseen[1] - foreseen[0] == pytest.approx(sizes[1] - sizes[0], rel=0.1)
    assert foreseen[1] == pytest.approx(sizes[1], abs=100_000)  # codebooks and rotations
