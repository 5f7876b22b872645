"""Quantized vectors: their search against NumPy brute force, and sweeps that encode each text once."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline import api
from pipeline.config.files import load_config
from pipeline.core.display import silent
from pipeline.core.order import sort_hits_by_id
from pipeline.core.records import Array, Float32, Ranking
from pipeline.run.benchmark import Benchmark
from pipeline.search import quantized
from pipeline.search.quantized import QuantizedVectors
from pipeline.storage.store import Store
from pipeline.storage.vector_forms import quantize_binary, quantize_int8, unpack_binary


def ids(n: int) -> pa.ChunkedArray:
    return pa.chunked_array([[f"p{7919 * row % n}" for row in range(n)]])


def brute_force(scores: Array, k: int) -> Ranking:
    """The best k by scores, [queries, passages], in the contract's order."""
    everything = np.broadcast_to(np.arange(scores.shape[1]), scores.shape).copy()
    rows, values = sort_hits_by_id(everything, scores.astype(np.float32), ids(scores.shape[1]))
    return Ranking(rows[:, :k], values[:, :k])


def same(found: Ranking, expected: Ranking) -> bool:
    return (found.passages == expected.passages).all() and (found.scores == expected.scores).all()


def vectors(precision: str, rows: Float32, shards: int = 3) -> QuantizedVectors:
    ranges = np.stack([rows.min(axis=0), rows.max(axis=0)]) if precision == "int8" else None
    made = quantize_binary(rows) if ranges is None else quantize_int8(rows, ranges)
    return QuantizedVectors(tuple(np.array_split(made, shards)), rows.shape[1], ranges)


@pytest.mark.parametrize(("n", "size", "k"), [(300, 1, 290), (4000, 9, 40), (9000, 6, 1), (700, 16, 9999)])
@pytest.mark.parametrize("memory_mb", [None, 1])
def test_bits_are_found_by_their_distance(
    n: int, size: int, k: int, memory_mb: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte gives hundreds of ties at the last rank; small blocks and little room, every path."""
    monkeypatch.setattr(quantized, "BLOCK", 1000)
    monkeypatch.setattr(quantized, "SPARE", 2)
    generator = np.random.default_rng(size)
    rows, queries = (generator.integers(0, 256, (count, size), np.uint8) for count in (n, 11))
    expected = -np.bitwise_count(queries[:, None] ^ rows[None]).sum(axis=2, dtype=np.int64)
    with silent("", None, "") as bar:
        shards = tuple(np.array_split(rows, 3))
        found = quantized.binary_search(shards, queries, k, ids(n), bar, memory_mb)
    assert same(found, brute_force(expected, min(k, n)))


@pytest.mark.parametrize("precision", ["int8", "binary"])
@pytest.mark.parametrize("dimension", [20, 64])
def test_hits_and_rescored_hits_are_those_of_brute_force(precision: str, dimension: int) -> None:
    generator = np.random.default_rng(dimension)
    rows, queries = (generator.standard_normal((count, dimension), np.float32) for count in (800, 9))
    rows[:, 3], k = 0.25, 15
    rows[100:160] = rows[:60]  # ties that ids decide
    stored = vectors(precision, rows)
    if stored.ranges is None:
        bits, wanted = (array > 0 for array in (rows, queries))
        scores = -(bits[None] != wanted[:, None]).sum(axis=2)
        values = bits.astype(np.float64)
        assert (unpack_binary(np.concatenate(stored.shards), dimension) == bits).all()
    else:
        whole = np.concatenate(stored.shards).astype(np.int64)
        scores = quantize_int8(queries, stored.ranges).astype(np.int64) @ whole.T
        steps = (stored.ranges[1] - stored.ranges[0]) / 255
        values = (whole + 128) * np.where(steps == 0, 1, steps) + stored.ranges[0]
    first = brute_force(scores, 4 * k).passages
    again = np.full(scores.shape, -np.inf)
    np.put_along_axis(again, first, np.take_along_axis(queries.astype(np.float64) @ values.T, first, 1), 1)
    with silent("", None, "") as bar:
        assert same(stored.search(queries, k, None, ids(800), bar), brute_force(scores, k))
        found = stored.search(queries, k, 4, ids(800), bar, memory_mb=64)
    expected = brute_force(again, k)
    assert (found.passages == expected.passages).all()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)


DIMENSIONS, FORMATS = (128, 96, 64, 36), ("fp32", "fp16", "int8", "binary")


def test_a_sweep_of_dimensions_and_formats_encodes_each_text_once(workplace: Path) -> None:
    for stage in ("passages", "queries", "index", "search", "evaluate"):
        shutil.rmtree(workplace / "indexes" / stage)
    places = [f"cache={workplace}/indexes", f"output={workplace}/results"]
    configs = {
        (size, form): load_config(
            workplace / "c.yaml",
            [
                *places,
                f"name=t-{size}-{form}",
                f"model.truncate_dim={size}",
                f"model.vector_precision={form}",
            ],
        )
        for size, form in itertools.product(DIMENSIONS, FORMATS)
    }
    outcomes = list(api.run_benchmarks(list(configs.values())))
    rows = [outcome.result.record.stage("passages") for outcome in outcomes]
    assert [row.reused for row in rows] == [False, *[True] * 15]
    assert rows[0].encoding.texts == 345
    assert len(list((workplace / "indexes" / "passages").iterdir())) == 1
    assert len({tuple(outcome.result.metrics["metrics"].values()) for outcome in outcomes}) > 8
    bytes_of = {key: each.result.record.vectors.bytes for key, each in zip(configs, outcomes, strict=True)}
    assert [bytes_of[64, form] for form in FORMATS] == [256, 128, 64, 8]
    assert bytes_of[36, "binary"] == 5
    opened = Benchmark(configs[36, "int8"], Store(workplace / "indexes")).opened("index")
    assert sum(shard.nbytes for shard in opened.shards) == 345 * 36


def test_rescored_benchmarks_search_the_same_index_again(workplace: Path) -> None:
    places = [f"cache={workplace}/indexes", f"output={workplace}/results", "model.vector_precision=binary"]
    plain = api.run_benchmark(load_config(workplace / "c.yaml", places)).record
    again = api.run_benchmark(load_config(workplace / "c.yaml", [*places, "search.rescore=4"])).record
    assert again.stage("index").reused
    assert again.metrics != plain.metrics
