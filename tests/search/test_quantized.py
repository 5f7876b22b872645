"""Quantized vectors: their search against the definition, and sweeps that encode each text once."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from inside import resize
from search.by_definition import best, ids, same
from workplaces import BAR, config, run

from pipeline import run_benchmarks
from pipeline.config import SearchConfig
from pipeline.run import Benchmark, Session
from pipeline.search import QuantizedSearcher, QuantizedVectors, binary_search
from pipeline.storage import quantize_binary, quantize_int8, unpack_binary


@pytest.mark.parametrize(("n", "size", "k"), [(300, 1, 290), (4000, 9, 40), (9000, 6, 1), (700, 16, 9999)])
@pytest.mark.parametrize("memory_mb", [None, 1])
def test_bits_are_found_by_their_distance(
    n: int, size: int, k: int, memory_mb: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte gives hundreds of ties at the last rank; small blocks and little room, every path."""
    resize(monkeypatch, bits_block=1000, bits_spare=2)
    generator = np.random.default_rng(size)
    rows, queries = (generator.integers(0, 256, (count, size), np.uint8) for count in (n, 11))
    expected = -np.bitwise_count(queries[:, None] ^ rows[None]).sum(axis=2, dtype=np.int64)
    shards = tuple(np.array_split(rows, 3))
    found = binary_search(shards, queries, k, ids(n), BAR, memory_mb)
    assert same(found, best(expected, min(k, n)))


@pytest.mark.parametrize("precision", ["int8", "binary"])
@pytest.mark.parametrize("dimension", [20, 64])
def test_hits_and_rescored_hits_are_the_best(precision: str, dimension: int) -> None:
    generator = np.random.default_rng(dimension)
    rows, queries = (generator.standard_normal((count, dimension), np.float32) for count in (800, 9))
    rows[:, 3], k = 0.25, 15
    rows[100:160] = rows[:60]  # ties that ids decide
    ranges = np.stack([rows.min(axis=0), rows.max(axis=0)]) if precision == "int8" else None
    made = quantize_binary(rows) if ranges is None else quantize_int8(rows, ranges)
    stored = QuantizedVectors(tuple(np.array_split(made, 3)), dimension, ranges)
    if ranges is None:
        bits, wanted = (array > 0 for array in (rows, queries))
        scores = -(bits[None] != wanted[:, None]).sum(axis=2)
        values = bits.astype(np.float64)
        assert (unpack_binary(np.concatenate(stored.shards), dimension) == bits).all()
    else:
        whole = np.concatenate(stored.shards).astype(np.int64)
        scores = quantize_int8(queries, ranges).astype(np.int64) @ whole.T
        steps = (ranges[1] - ranges[0]) / 255
        values = (whole + 128) * np.where(steps == 0, 1, steps) + ranges[0]
    first = best(scores, 4 * k).passages
    again = np.full(scores.shape, -np.inf)
    np.put_along_axis(again, first, np.take_along_axis(queries.astype(np.float64) @ values.T, first, 1), 1)
    plain, rescored = SearchConfig(), SearchConfig(rescore=4, memory_mb=64)
    assert same(QuantizedSearcher(plain, stored, ids(800)).search(queries, k, BAR), best(scores, k))
    found = QuantizedSearcher(rescored, stored, ids(800)).search(queries, k, BAR)
    expected = best(again, k)
    assert (found.passages == expected.passages).all()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)


FORMATS = ("fp32", "fp16", "int8", "binary")
SWEEP = ((128, "fp32"), (128, "binary"), *((64, form) for form in FORMATS), (36, "int8"), (36, "binary"))


def test_a_sweep_of_dimensions_and_formats_encodes_each_text_once(workplace: Path) -> None:
    for stage in ("passages", "queries", "index", "search", "evaluate"):
        shutil.rmtree(workplace / "indexes" / stage)
    configs = {
        (size, form): config(
            workplace,
            f"name=t-{size}-{form}",
            f"model.truncate_dim={size}",
            f"model.vector_precision={form}",
        )
        for size, form in SWEEP
    }
    outcomes = list(run_benchmarks(list(configs.values())))
    rows = [outcome.result.record.stage("passages") for outcome in outcomes]
    assert [row.reused for row in rows] == [False, *[True] * 7]
    assert rows[0].encoding.texts == 345
    assert len(list((workplace / "indexes" / "passages").iterdir())) == 1
    assert len({tuple(outcome.result.metrics.values()) for outcome in outcomes}) > 6
    bytes_of = {key: each.result.record.vectors.bytes for key, each in zip(configs, outcomes, strict=True)}
    assert [bytes_of[64, form] for form in FORMATS] == [256, 128, 64, 8]
    assert bytes_of[36, "binary"] == 5
    opened = Benchmark(configs[36, "int8"], Session()).opened("index")
    assert sum(shard.nbytes for shard in opened.shards) == 345 * 36
    plain = outcomes[list(configs).index((128, "binary"))].result.record
    form = ("model.truncate_dim=128", "model.vector_precision=binary")
    again = run(workplace, *form, "search.rescore=4").record
    assert again.stage("index").reused
    assert again.metrics != plain.metrics
