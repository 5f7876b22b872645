"""int8 and binary vectors against `quantize_embeddings` of sentence-transformers, bit by bit."""

from pathlib import Path

import numpy as np
import pytest
from workplaces import config

from pipeline.run.benchmark import Benchmark, Session
from pipeline.storage.vector_shards import quantize_int8, read_rows


@pytest.mark.parametrize("precision", ["int8", "binary"])
@pytest.mark.parametrize("dimension", [128, 36])
def test_a_benchmark_s_vectors(precision: str, dimension: int, workplace: Path) -> None:
    from sentence_transformers.util import quantize_embeddings

    cut, session = f"model.truncate_dim={dimension}", Session()
    floats = Benchmark(config(workplace, cut), session)
    rows = read_rows(floats.opened("passages"), 0, 345)
    quantized = Benchmark(config(workplace, cut, f"model.vector_precision={precision}"), session)
    found = quantized.opened("index")
    stored = np.concatenate(found.shards)
    expected = quantize_embeddings(rows, precision=precision)
    assert stored.dtype == expected.dtype
    assert stored.tobytes() == expected.tobytes()
    if precision == "int8":
        queries = quantized.opened("queries")
        assert (
            quantize_embeddings(queries, "int8", found.ranges) == quantize_int8(queries, found.ranges)
        ).all()
