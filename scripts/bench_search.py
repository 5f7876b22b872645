#!/usr/bin/env python
"""Exact search of vectors larger than memory, against Faiss with everything in memory.

    .venv/bin/python scripts/bench_search.py            # 1,500,000 x 384: 2.4 GB of disk, 6 GB of memory
    .venv/bin/python scripts/bench_search.py --vectors passages.npy  # real ones, repeated with noise
    .venv/bin/python scripts/bench_search.py --sparse --rows 200000 --queries 200  # word weights

Vectors are drawn at random and kept as a benchmark keeps them. `streamed` is `search.exact.ExactSearcher`
within --memory-mb, `memory` is `IndexFlatIP.search` alone on vectors it already holds, `usearch` the exact
search of that package if it is installed; each runs in a process of its own, in turn, round after round.
Faiss has the matrix kernels that suit the processor: they are printed, and older ones stop the script. The
ratio is of the medians. Hits are compared twice: with those of IndexFlatIP once each is given its score in
double precision (they must be the same), and with those it gives itself, whose order differs where two scores
are closer than float32 sums are exact.

Before that come the rates of the product alone, on rows that are in the processor's cache, on all cores:
`dense.find` with thresholds that nothing reaches, in int8 with rounding, and NumPy's in fp32.

With --sparse the inverted index is searched, against SciPy's product of CSR matrices with the top k taken of
each row; words are drawn by Zipf's law, 130 a passage and 17 a query of 30,522, as of a SPLADE.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import check_kernels, in_turn, show

from pipeline.core import machine
from pipeline.core.display import silent
from pipeline.core.installation import is_installed
from pipeline.core.machine import Meter
from pipeline.core.records import Embeddings, Float32, RaggedRows
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

SHARD = 16384
WORDS = 30522


def main() -> None:
    arguments = parse()
    if arguments.child:
        child(arguments)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder, ignore_cleanup_errors=True) as folder:
        if arguments.sparse:
            compare_sparse(arguments)
            return
        sizes = [arguments.rows // 4, arguments.rows // 2, arguments.rows]
        if arguments.vectors:
            arguments.dimension = np.load(arguments.vectors, mmap_mode="r").shape[1]
        draw(Path(folder), arguments)
        print(f"{arguments.rows:,} x {arguments.dimension}, {arguments.queries} queries")
        print(f"on {machine.hardware()['cpu']}, {machine.threads()} cores")
        show_rates(np.load(Path(folder) / "queries.npy"))
        for k in arguments.k:
            compare(arguments, Path(folder), k)
            figures = [run("streamed", arguments, Path(folder), k, rows) for rows in sizes]
            for rows, figure in zip(sizes, figures, strict=True):
                per_row = figure["seconds"] / rows * 1e6
                print(f"  k={k} {rows:>10,} rows: {figure['seconds']:6.2f} s, {per_row:.2f} s per million")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_500_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--k", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--memory-mb", type=int, default=700)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vectors", help="a .npy of vectors, repeated with noise; random ones if not given")
    parser.add_argument(
        "--folder", help="where the vectors are kept meanwhile; the system's own if not given"
    )
    parser.add_argument("--sparse", action="store_true", help="word weights, against SciPy")
    parser.add_argument("--child", choices=("streamed", "memory", "usearch"), help=argparse.SUPPRESS)
    return parser.parse_args()


def draw_words(random: np.random.Generator, rows: int, mean: int) -> RaggedRows:
    """Rows of about `mean` words each, drawn by Zipf's law, with random weights."""
    chance = 1 / np.arange(30, WORDS + 30)
    drawn = random.choice(WORDS, (rows, mean * 5 // 4), p=chance / chance.sum()).astype(np.int32)
    drawn.sort(axis=1)
    first = np.diff(drawn, axis=1, prepend=-1) > 0  # a word drawn again is left out
    weights = random.random(int(first.sum()), np.float32) + np.float32(0.01)
    return RaggedRows(np.cumsum(first.sum(1)), (drawn[first], weights))


def compare_sparse(arguments: argparse.Namespace) -> None:
    """The inverted index against SciPy, in turn, with the index of both made before."""
    from scipy.sparse import csr_array

    from pipeline.search import inverted_index

    random = np.random.default_rng(0)
    passages, queries = draw_words(random, arguments.rows, 130), draw_words(random, arguments.queries, 17)

    def matrix(rows: RaggedRows) -> Any:
        starts = np.concatenate([[0], rows.ends])
        return csr_array((rows.columns[1], rows.columns[0], starts), shape=(len(rows), WORDS))

    by_word, asked = matrix(passages).T.tocsr(), matrix(queries)
    segments = list(inverted_index.InvertedSegments((passages,)))
    rank = random.permutation(len(passages))
    inverted_index.compile_all()

    def scipy_search(k: int) -> Any:
        scores = asked @ by_word
        best = []
        for start, stop in itertools.pairwise(scores.indptr.tolist()):
            row, found = scores.data[start:stop], scores.indices[start:stop]
            top = np.argpartition(-row, min(k, len(row) - 1))[:k]
            top = top[np.argsort(-row[top])]
            best.append((found[top], row[top]))
        return best

    def ours(k: int) -> Any:
        with silent("", None, "") as bar:
            return inverted_index.search(segments, queries, k, rank, bar)

    lengths = passages.entries / len(passages), queries.entries / len(queries)
    sizes = f"{len(passages):,} passages and {len(queries)} queries"
    print(f"{sizes}, of {lengths[0]:.0f} and {lengths[1]:.1f} words")
    for k in arguments.k:
        timed = in_turn(
            {"SciPy": partial(scipy_search, k), "inverted index": partial(ours, k)}, arguments.rounds
        )
        for row, (_, scores) in enumerate(timed["SciPy"].result):
            found = timed["inverted index"].result.scores[row, : len(scores)]
            np.testing.assert_allclose(found, scores, rtol=1e-5)
        show(f"k={k}", timed, len(queries), "queries", "SciPy")


def show_rates(queries: Float32) -> None:
    """Print the rates of the products alone."""
    from pipeline.native.nearest import dense

    count, cores = 1920, machine.threads()
    rows = dense.fixed(np.random.default_rng(1).standard_normal((count, queries.shape[1]), np.float32))
    by_kind: dict[str, Callable[[int], Any]] = {"fp32": lambda _: rows @ queries.T}
    packed = dense.pack_queries(queries)
    never = np.full(len(queries), np.inf, np.float32)

    def find(_: int) -> None:
        hits, state, longest = dense.Hits.empty(dense.ROOM), np.zeros(3, np.int64), np.full(1, np.inf)
        dense.find(rows, 0, queries, packed, False, never, never, longest, state, hits)

    by_kind["int8"] = find
    said = []
    for name, multiply in by_kind.items():
        at_once = 1 if name == "fp32" else cores  # NumPy uses all cores by itself
        seconds = []
        with ThreadPoolExecutor(at_once) as threads:
            for _ in range(10):
                started = time.perf_counter()
                list(threads.map(multiply, range(at_once)))
                seconds.append(time.perf_counter() - started)
        said.append(f"{name} {at_once * 2 * count * queries.size / min(seconds) / 1e9:,.0f}")
    print(f"product alone, in 10^9 operations a second: {', '.join(said)}", flush=True)


def draw(folder: Path, arguments: argparse.Namespace) -> None:
    """Vectors of length 1 as shards in an artifact store, and queries beside it."""
    generator, rows, dimension = np.random.default_rng(0), arguments.rows, arguments.dimension
    base = np.load(arguments.vectors).astype(np.float32) if arguments.vectors else None

    def some(count: int) -> Float32:
        made = generator.standard_normal((count, dimension), np.float32)
        if base is not None:  # noise of about a fifth of the length
            picked = base[generator.integers(0, len(base), count)]
            made *= np.float32(0.2 / np.sqrt(dimension)) * np.linalg.norm(picked, axis=1, keepdims=True)
            made += picked
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        return made

    def build(draft: Any) -> dict[str, Any]:
        for start in range(0, rows, SHARD):
            part = some(min(SHARD, rows - start))
            draft.save_array(vector_shards.shard_name(start, start + len(part)), part)
        return {}

    np.save(folder / "queries.npy", some(arguments.queries))
    Store(folder).make(Recipe("passages", {}), build)


def stored(folder: Path, rows: int) -> Embeddings:
    """The first of the stored vectors."""
    artifact = Store(folder).find(Recipe("passages", {}))
    assert isinstance(artifact, Artifact)
    shards, left = [], rows
    for shard in vector_shards.open_embeddings(artifact).shards:
        shards.append(shard[:left])
        left -= len(shards[-1])
        if not left:
            break
    return Embeddings(tuple(shards))


def names(rows: int) -> pa.ChunkedArray:
    """Ids as MS MARCO has them: row numbers, whose order as strings is another."""
    return pa.chunked_array([pa.array(np.arange(rows)).cast(pa.string())])


def run(kind: str, arguments: argparse.Namespace, folder: Path, k: int, rows: int) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [
        sys.executable, __file__, "--child", kind, "--folder", str(folder), "--k", str(k),
        "--rows", str(rows), "--memory-mb", str(arguments.memory_mb),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        sys.exit(done.returncode)  # it has said why
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def child(arguments: argparse.Namespace) -> None:
    from pipeline.search import exact

    folder, k = Path(arguments.folder), arguments.k[0]
    if arguments.child == "usearch":
        usearch(folder, arguments.rows, k)
        return
    queries, embeddings = np.load(folder / "queries.npy"), stored(folder, arguments.rows)
    ids = names(len(embeddings))
    with silent("", None, "") as bar:
        if arguments.child == "streamed":
            if exact.filter_pays(queries, len(embeddings)):
                exact.compile_filter(queries.shape[1])
            exact.ExactSearcher(embeddings, ids, "inner_product").search(queries[:32], k, bar)
            searcher = exact.ExactSearcher(embeddings, ids, "inner_product", arguments.memory_mb)
            meter, started = Meter(), time.perf_counter()
            ranking = searcher.search(queries, k, bar)
            seconds = time.perf_counter() - started
        else:
            from pipeline.search.faiss_library import faiss

            faiss.cvar.distance_compute_blas_threshold = 1  # by matrix products, also of few queries
            index = faiss.IndexFlatIP(embeddings.dimension)
            for shard in embeddings.shards:
                index.add(np.asarray(shard))
            index.search(queries[:32], k)
            check_kernels()
            meter, started = Meter(), time.perf_counter()
            raw = index.search(queries, k)
            seconds = time.perf_counter() - started
            np.save(folder / "raw.npy", raw[1])
            ranking = exact.ExactSearcher(embeddings, ids, "inner_product").search(queries, k, bar)
    np.save(folder / f"{arguments.child}.npy", ranking.passages)
    np.save(folder / f"{arguments.child}-scores.npy", ranking.scores)
    print(json.dumps({"seconds": seconds, "peak_mb": meter.figures()["peak_rss_mb"]}))


def usearch(folder: Path, rows: int, k: int) -> None:
    """Time the exact search of the package usearch, which computes each product by itself."""
    from usearch.index import MetricKind, search

    queries = np.load(folder / "queries.npy")
    vectors = np.concatenate([np.asarray(shard) for shard in stored(folder, rows).shards])
    search(vectors[:10_000], queries[:32], k, MetricKind.IP, exact=True)
    meter, started = Meter(), time.perf_counter()
    search(vectors, queries, k, MetricKind.IP, exact=True)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "peak_mb": meter.figures()["peak_rss_mb"]}))


def compare(arguments: argparse.Namespace, folder: Path, k: int) -> None:
    seconds: dict[str, list[float]] = {"memory": [], "streamed": []}
    if is_installed("usearch"):
        seconds["usearch"] = []
    peaks: dict[str, float] = {}
    for _ in range(arguments.rounds):
        for kind, times in seconds.items():
            figures = run(kind, arguments, folder, k, arguments.rows)
            times.append(figures["seconds"])
            peaks[kind] = max(figures["peak_mb"], peaks.get(kind, 0))
    medians = {kind: statistics.median(times) for kind, times in seconds.items()}
    work = 2 * arguments.rows * arguments.dimension * arguments.queries / 1e9
    for kind, times in seconds.items():
        spread = f"{min(times):.2f} to {max(times):.2f}"
        rate = work / medians[kind]
        print(f"k={k} {kind:<9}{medians[kind]:7.2f} s ({spread}), {rate:4.0f} GFLOP/s", end=", ")
        print(f"peak {peaks[kind]:,.0f} MB")
    print(f"k={k} ratio {medians['streamed'] / medians['memory']:.3f}")
    ours, theirs, raw = (np.load(folder / f"{name}.npy") for name in ("streamed", "memory", "raw"))
    scores = [np.load(folder / f"{kind}-scores.npy") for kind in ("streamed", "memory")]
    same = bool((ours == theirs).all() and (scores[0] == scores[1]).all())
    swapped = int((ours != raw).sum())
    sets = sum(set(a) != set(b) for a, b in zip(ours.tolist(), raw.tolist(), strict=True))
    print(f"k={k} hits and scores identical: {same}; in IndexFlatIP's own order {swapped:,} of {raw.size:,} "
          f"stand elsewhere, and {sets} queries have another last hit")  # fmt: skip


if __name__ == "__main__":
    main()
