"""Exact search of int8 and binary vectors, beside Faiss's exact searches of floats and of bits.

python scripts/bench_quantized.py --rows 1000000 --queries 512

Each round runs every search once, one after the other; ratios are of the medians of the rounds. The hits of
bits are compared with those of IndexBinaryFlat by their distances, in which both must agree.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.progress import silent
from pipeline.core.records import Float32, Ranking
from pipeline.search.quantized import QuantizedVectors
from pipeline.storage.vector_forms import quantize_binary, quantize_int8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--rescore", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    searches = prepare(arguments)
    times: dict[str, list[float]] = {name: [] for name in searches}
    found: dict[str, Any] = {}
    for _ in range(arguments.rounds):
        for name, search in searches.items():
            started = time.perf_counter()
            found[name] = search()
            times[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(each) for name, each in times.items()}
    for name, each in times.items():
        rate = arguments.queries / medians[name]
        print(f"{name:<24}{medians[name]:8.3f} s ({min(each):.3f} to {max(each):.3f}), {rate:,.0f} queries/s")
    for ours, theirs in (("binary", "faiss IndexBinaryFlat"), ("int8", "faiss IndexFlatIP")):
        print(f"{ours}: {medians[theirs] / medians[ours]:.2f} times as fast as {theirs}")
    same = (-found["binary"].scores == found["faiss IndexBinaryFlat"][0]).all()
    print(f"distances of the hits equal those of IndexBinaryFlat: {bool(same)}")


def prepare(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """The searches by their names; all indexes are built, and every kernel is compiled."""
    import faiss

    generator = np.random.default_rng(0)

    def some(count: int) -> Float32:
        made = generator.standard_normal((count, arguments.dimension), np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        return made

    rows, queries, k = some(arguments.rows), some(arguments.queries), arguments.k
    ranges = np.stack([rows.min(axis=0), rows.max(axis=0)])
    whole = QuantizedVectors((quantize_int8(rows, ranges),), arguments.dimension, ranges)
    bits = QuantizedVectors((quantize_binary(rows),), arguments.dimension, None)
    ids = pa.chunked_array([pa.array(np.arange(len(rows))).cast(pa.string())])
    floats = faiss.IndexFlatIP(arguments.dimension)
    floats.add(rows)
    packed, wanted = (np.packbits(array > 0, axis=1) for array in (rows, queries))
    binary = faiss.IndexBinaryFlat(packed.shape[1] * 8)
    binary.add(packed)

    def ours(vectors: QuantizedVectors, rescore: int | None) -> Ranking:
        with silent("", None, "") as bar:
            return vectors.search(queries, k, rescore, ids, bar)

    searches: dict[str, Callable[[], Any]] = {
        "int8": lambda: ours(whole, None),
        "binary": lambda: ours(bits, None),
        "binary, rescored": lambda: ours(bits, arguments.rescore),
        "faiss IndexFlatIP": lambda: floats.search(queries, k),
        "faiss IndexBinaryFlat": lambda: binary.search(wanted, k),
    }
    for search in searches.values():
        search()
    return searches


if __name__ == "__main__":
    main()
