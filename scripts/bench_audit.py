#!/usr/bin/env python
"""Seconds and memory of `data --audit` on a collection of random words, with some of each defect.

.venv/bin/python scripts/bench_audit.py --passages 1000000
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import pyarrow as pa

from pipeline.core.records import Collection, Qrels, Texts
from pipeline.metrics.definitions import parse_measures
from pipeline.studies.collection.audit import audit

BATCH = 8192
WORDS = np.array([f"word{number}" for number in range(20_000)], object)


def make_collection(passages: int, queries: int, judged: int) -> Collection:
    """Passages of 56 random words, of which one in a thousand repeats another one, and their judgments."""
    random = np.random.default_rng(0)
    texts, ids = [], []
    for start in range(0, passages, BATCH):
        count = min(BATCH, passages - start)
        drawn = [" ".join(words) for words in WORDS[random.integers(0, len(WORDS), (count, 56))]]
        for row in range(0, count - 1, 1000):
            drawn[row] = f" {drawn[row + 1]}"
        texts.append(pa.array(drawn))
        ids.append(pa.array([f"d{start + row}" for row in range(count)]))
    names = pa.chunked_array([[f"q{number}" for number in range(queries)]])
    asked = pa.chunked_array([[f"what is {WORDS[number % len(WORDS)]}" for number in range(queries)]])
    pairs = np.sort(random.choice(passages, (queries, judged)), axis=1)
    rows = np.repeat(np.arange(queries), judged)
    qrels = Qrels(rows, pairs.ravel(), random.integers(0, 4, queries * judged))
    none = pa.chunked_array([[]], pa.string())
    return Collection(
        Texts(pa.chunked_array(ids), pa.chunked_array(texts)), Texts(names, asked), none, qrels, {}
    )


def main() -> None:
    """Audit the collection and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--judged", type=int, default=10, help="judgments of a query")
    chosen = parser.parse_args()
    collection = make_collection(chosen.passages, chosen.queries, chosen.judged)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    started = time.perf_counter()
    found = audit(collection, parse_measures(["ndcg@10", "map"]))
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    memory = f"{peak:,.0f} MB, of which {before:,.0f} hold the texts"
    print(f"{chosen.passages:,} passages: {seconds:.1f} s, {memory}")
    for defect in found.defects:
        if defect.count:
            print(f"  {defect.what}: {defect.count:,} of {defect.of:,}")
    for change in found.scores:
        print("  a perfect ranking: {measure} {lowest:.5f} to {perfect:.5f}".format(**change))


if __name__ == "__main__":
    main()
