#!/usr/bin/env python
"""Exact MaxSim search against PyTorch, sentence-transformers, and the package fast-maxsim.

    .venv/bin/python scripts/bench_maxsim.py            # 20,000 passages of about 70 tokens x 128: 0.7 GB
    .venv/bin/pip install fast-maxsim                   # a row more

`benchmarco` is `search.maxsim.maxsim_search`, top k and all, of a memory-mapped file within --memory-mb. The
others compute the scores of all pairs, of vectors that they hold in memory, and take the top k:

- `einsum`: `torch.einsum("qid,pjd->qpij")` of padded queries and passages in batches, then the maximum and
  the sum; the best of several batch sizes.
- `matmul`: the same as one matrix product of all tokens, which PyTorch computes faster than the einsum.
- `sentence-transformers`: its function `maxsim`, which `MultiVectorEncoder.similarity` calls.
- `fast-maxsim`: `maxsim_scores_variable`, a call for each query, if the package is installed.

All run in one process, in turn, round after round, with as many threads as there are cores. Ratios are of the
medians. Vectors are random, of length 1, and nearer to each other than chance, as those of models are.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from harness import in_turn, show

from pipeline.core import machine
from pipeline.core.display import silent
from pipeline.core.records import Array, Embeddings, Float32, Int64, TokenEmbeddings
from pipeline.search import maxsim

BATCHES = (16, 64, 256)  # passages at once, of which the einsum's fastest counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=43)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--query-tokens", type=int, default=32)
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--memory-mb", type=int, default=500)
    parser.add_argument("--precision", choices=("fp32", "fp16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(machine.cores())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bench(arguments, Path(folder))


def draw(tokens: Int64, dimension: int, seed: int) -> tuple[Float32, Int64]:
    """Token vectors of texts with so many tokens each, and where each text ends."""
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((int(tokens.sum()), dimension), np.float32) + np.float32(0.5)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, np.cumsum(tokens)


def bench(arguments: argparse.Namespace, folder: Path) -> None:
    generator = np.random.default_rng(2)
    lengths = generator.normal(70, 25, arguments.passages).clip(8, 180).astype(np.int64)
    vectors, ends = draw(lengths, arguments.dimension, 0)
    if arguments.precision == "fp16":
        vectors = vectors.astype(np.float16).astype(np.float32)
    np.save(
        folder / "tokens.npy", vectors.astype({"fp32": np.float32, "fp16": np.float16}[arguments.precision])
    )
    asked = draw(np.full(arguments.queries, arguments.query_tokens), arguments.dimension, 1)
    searches = peers(vectors, ends, *asked, min(arguments.k, arguments.passages))
    searches["benchmarco"] = ours(arguments, folder, ends, *asked)
    timed = in_turn(searches, arguments.rounds)

    def apart(name: str) -> str:
        found, own = timed[name].result, timed["benchmarco"].result
        both = np.isfinite(found)
        return f"{np.abs(found - own)[both].max():.1e}"

    work = 2 * len(vectors) * arguments.queries * arguments.query_tokens * arguments.dimension / 1e9
    show(
        f"{arguments.passages:,} passages, {len(vectors):,} tokens x {arguments.dimension} "
        f"{arguments.precision}, {arguments.queries} queries of {arguments.query_tokens} tokens, "
        f"k = {arguments.k}",
        timed,
        arguments.queries,
        "queries",
        "benchmarco",
        {"GFLOP/s": lambda name: f"{work / timed[name].median:.0f}", "scores differ by": apart},
    )


def ours(
    arguments: argparse.Namespace, folder: Path, ends: Int64, queries: Float32, query_ends: Int64
) -> Callable[[], Array]:
    mapped = Embeddings((np.load(folder / "tokens.npy", mmap_mode="r"),))
    passages = TokenEmbeddings(mapped, ends)
    asked = TokenEmbeddings(Embeddings((queries,)), query_ends)
    ids = pa.chunked_array([pa.array(np.arange(arguments.passages)).cast(pa.string())])

    def search() -> Array:
        with silent("", None, "") as bar:
            ranking = maxsim.maxsim_search(
                passages, asked, arguments.k, ids, bar, memory_mb=arguments.memory_mb
            )
        return ranking.scores

    return search


def peers(
    vectors: Float32, ends: Int64, queries: Float32, query_ends: Int64, k: int
) -> dict[str, Callable[[], Array]]:
    """The other searches, each of which returns the best scores of each query."""
    from sentence_transformers.util.similarity import maxsim as their_maxsim

    texts = [torch.from_numpy(text) for text in np.split(vectors, ends[:-1])]
    asked = torch.from_numpy(np.stack(np.split(queries, query_ends[:-1])))

    def top(scores: Any) -> Array:
        best: Array = torch.topk(scores, k).values.numpy()
        return best

    def batched(score: Callable[[Any], Any], batch: int) -> Callable[[], Array]:
        def search() -> Array:
            scores = torch.empty(len(asked), len(texts))
            for start in range(0, len(texts), batch):
                some = texts[start : start + batch]
                padded = torch.nn.utils.rnn.pad_sequence(some, batch_first=True)
                padding = torch.arange(padded.shape[1]) >= torch.tensor([len(text) for text in some])[:, None]
                products = score(padded).masked_fill_(padding[None, :, None], -torch.inf)
                scores[:, start : start + batch] = products.amax(-1).sum(-1)
            return top(scores)

        return search

    def einsum(padded: Any) -> Any:
        return torch.einsum("qid,pjd->qpij", asked, padded)

    def matmul(padded: Any) -> Any:
        n, tokens, dimension = padded.shape
        products = padded.reshape(-1, dimension) @ asked.reshape(-1, dimension).T
        return products.view(n, tokens, len(asked), -1).permute(2, 0, 3, 1)

    searches = {f"einsum, {batch} passages": batched(einsum, batch) for batch in BATCHES}
    searches |= {f"matmul, {batch} passages": batched(matmul, batch) for batch in BATCHES}
    searches["sentence-transformers"] = lambda: top(their_maxsim(asked, texts))
    try:
        import fast_maxsim
    except ImportError:
        print("fast-maxsim is not installed")
        return searches
    arrays, own = [text.numpy() for text in texts], list(asked.numpy())

    def fast() -> Array:
        return top(
            torch.from_numpy(np.stack([fast_maxsim.maxsim_scores_variable(query, arrays) for query in own]))
        )

    return {**searches, "fast-maxsim": fast}


if __name__ == "__main__":
    main()
