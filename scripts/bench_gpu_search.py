#!/usr/bin/env python
"""Exact search on one GPU beside this project's on the CPU and Faiss' `IndexFlatIP`.

    .venv/bin/python scripts/bench_gpu_search.py --rows 8841823 --queries 512
    .venv/bin/python scripts/bench_gpu_search.py --rows 100000 --device cpu    # torch on the CPU, to try it

Vectors are random, of length 1. Searches take turns; the first round warms up and does not count. Passages
and scores of the GPU are compared with those of the CPU: they must be the same.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import torch
from harness import in_turn

from pipeline.core import machine
from pipeline.core.display import silent
from pipeline.core.records import Embeddings, Float32, Ranking
from pipeline.search import exact


def random_rows(n: int, dimension: int) -> Float32:
    """float32 [n, dimension]: random rows of length 1, made on all cores."""
    rows = np.empty((n, dimension), np.float32)

    def fill(start: int) -> None:
        part = rows[start : start + 65536]
        np.random.default_rng(start).standard_normal(out=part, dtype=np.float32)
        part /= np.sqrt(np.einsum("ij,ij->i", part, part))[:, None]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, range(0, n, 65536)))
    return rows


def main() -> None:
    """Time the searches and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_500_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--top-k", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--peers", action="store_true", help="also time the CPU's search and Faiss")
    chosen = parser.parse_args()
    rows, queries = random_rows(chosen.rows, chosen.dimension), random_rows(chosen.queries, chosen.dimension)
    ids = pa.chunked_array([pa.array(np.arange(len(rows)).astype(str))])
    device = torch.device(chosen.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "torch on the CPU"
    print(
        f"{chosen.rows:,} x {chosen.dimension}, {chosen.queries} queries; {name}; {machine.threads()} threads"
    )
    for k in chosen.top_k:

        def search(where: str, k: int = k) -> Ranking:
            with silent("", None, "") as bar:
                searcher = exact.ExactSearcher(Embeddings((rows,)), ids, "inner_product", device=where)
                return searcher.search(queries, k, bar)

        def on_device(k: int = k) -> Ranking:
            with mock.patch.object(exact, "find_device", return_value=device):
                return search("cuda", k)

        tasks: dict[str, Callable[[], Any]] = {"GPU": on_device}
        if chosen.peers:
            from pipeline.search.faiss_library import faiss

            index = faiss.IndexFlatIP(chosen.dimension)
            index.add(rows)

            def by_faiss(k: int = k, index: Any = index) -> Any:
                return index.search(queries, k)

            tasks |= {"CPU": lambda: search("cpu"), "IndexFlatIP": by_faiss}
        timed = in_turn(tasks, chosen.rounds)
        for task, found in timed.items():
            print(f"k {k:5}  {task:12} {found.median:8.3f} s ({found.spread})")
        reference = timed["CPU"].result if chosen.peers else search("cpu")
        found = timed["GPU"].result
        same = np.array_equal(found.passages, reference.passages) and np.array_equal(
            found.scores, reference.scores
        )
        print(f"k {k:5}  passages and scores of GPU and CPU are {'the same' if same else 'NOT THE SAME'}")


if __name__ == "__main__":
    main()
