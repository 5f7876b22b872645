#!/usr/bin/env python
"""The whole benchmark at MS MARCO's size, of texts or of given vectors: seconds and memory of each stage.

    .venv/bin/python scripts/bench_full_size.py                   # 1, 3 and 8.8 million passages
    .venv/bin/python scripts/bench_full_size.py --rows 1000000    # one size
    .venv/bin/python scripts/bench_full_size.py --rows 200000 --model all-minilm-l6-v2 --folder /tmp/texts

With --model, texts are generated whose lengths in tokens are those of a slice of MS MARCO, of words of the
model's vocabulary by Zipf's law, and encoded by --backend. The run is killed when half of the vectors are
stored, and run again; `--folder` is kept, and the same command continues there. Then `plan --passages
8841823` tells what the whole would take here.

Without, passages are generated as long as MS MARCO's, and vectors are drawn at random. A query is
the vector of the passage that is judged relevant for it, with noise, so that the measures are known: nearly
all of those passages come first. `benchmarco run` then does what it does for any benchmark: it reads and
hashes the collection, stores the vectors, searches them exactly within --memory-mb and scores the ranking,
in a process of its own for each size. The largest size needs about 40 GB of disk in `--folder`, which is
emptied afterwards.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipeline.core.machine import hardware

ROOT = Path(__file__).resolve().parent.parent
SIZES = [1_000_000, 3_000_000, 8_841_823]
QUERIES, WORDS = 6_980, 2_000
TOKENS = (12, 50, 57, 62, 67, 72, 80, 94, 111, 132, 260)
"""Deciles of the lengths of 14,581 passages of MS MARCO, in tokens of BERT."""
QUERY_TOKENS = (6, 6, 7, 8, 8, 9, 9, 9, 11, 12, 15)  # of 43 queries
NOISE = 1.0  # length of the noise that is added to a passage's vector of length 1 to make its query
BLOCK = 1 << 16


def generate(folder: Path, rows: int) -> None:
    """Write a collection in BEIR's layout, of passages of random words."""
    rng = np.random.default_rng(0)
    words = [f"w{''.join(chr(97 + letter) for letter in rng.integers(0, 26, 5))}" for _ in range(WORDS)]
    long_text = " ".join(words[number] for number in rng.integers(0, WORDS, 20_000))
    starts = rng.integers(0, len(long_text) - 1000, rows)
    lengths = rng.integers(120, 560, rows)
    (folder / "qrels").mkdir(parents=True)
    with open(folder / "corpus.jsonl", "w") as corpus:
        for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            text = long_text[start : start + length]
            corpus.write(f'{{"_id": "{row}", "title": "", "text": "{text}"}}\n')
    judged = rng.integers(0, rows, min(QUERIES, rows)).tolist()
    with open(folder / "queries.jsonl", "w") as file:
        file.writelines(f'{{"_id": "q{row}", "text": "which words"}}\n' for row in range(len(judged)))
    lines = "".join(f"q{row}\t{passage}\t1\n" for row, passage in enumerate(judged))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)


def generate_texts(folder: Path, rows: int, model: str) -> None:
    """Write a collection of words of a model's vocabulary in BEIR's layout, with queries of a passage's."""
    from tokenizers import Tokenizer

    from pipeline.models import find_model

    vocabulary = Tokenizer.from_file(
        str(find_model(model, None, False).folder() / "tokenizer.json")
    ).get_vocab()
    # about the order of how common they are
    words = np.array([word for word in sorted(vocabulary, key=vocabulary.__getitem__) if word.isalpha()])
    rng, bounds = np.random.default_rng(0), np.linspace(0, 1, len(TOKENS))
    zipf = np.cumsum(1 / np.arange(1, len(words) + 1))
    (folder / "qrels").mkdir(parents=True)
    judged = np.sort(rng.choice(rows, min(QUERIES, rows // 10), replace=False))
    asked = (
        np.interp(rng.random(len(judged)), bounds, QUERY_TOKENS).astype(int) - 2
    )  # without [CLS] and [SEP]
    queries = iter(zip(judged.tolist(), asked.tolist(), strict=True))
    row, length = next(queries)
    with open(folder / "corpus.jsonl", "w") as corpus, open(folder / "queries.jsonl", "w") as file:
        for start in range(0, rows, BLOCK):
            lengths = np.interp(rng.random(min(BLOCK, rows - start)), bounds, TOKENS).astype(int) - 2
            drawn = words[np.searchsorted(zipf, rng.random(lengths.sum()) * zipf[-1])]
            for number, text in enumerate(np.split(drawn, np.cumsum(lengths)[:-1]), start=start):
                corpus.write(f'{{"_id": "{number}", "title": "", "text": "{" ".join(text)}"}}\n')
                if number == row:
                    file.write(f'{{"_id": "q{row}", "text": "{" ".join(rng.choice(text, length))}"}}\n')
                    row, length = next(queries, (-1, 0))
    lines = "".join(f"q{row}\t{row}\t1\n" for row in judged.tolist())
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)


def draw_vectors(folder: Path, rows: int, dimension: int) -> None:
    """Write `passages.npy`, fp16 of length 1, and `queries.npy`, one for each judged passage."""
    generator = np.random.default_rng(1)
    path, shape = folder / "passages.npy", (rows, dimension)
    passages = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
    for start in range(0, rows, BLOCK):
        made = generator.standard_normal((min(BLOCK, rows - start), dimension), np.float32)
        passages[start : start + BLOCK] = made / np.linalg.norm(made, axis=1, keepdims=True)
    judged = np.loadtxt(folder / "qrels" / "test.tsv", dtype=np.int64, usecols=1, skiprows=1)
    noise = generator.standard_normal((len(judged), dimension), np.float32) * (NOISE / dimension**0.5)
    queries = passages[judged] + noise
    np.save(folder / "queries.npy", queries / np.linalg.norm(queries, axis=1, keepdims=True))


def write_config(folder: Path, memory_mb: int, model: dict[str, Any] | None = None) -> Path:
    """A benchmark of the generated files, whose vectors are given if no model encodes the texts."""
    config = {
        "name": "full",
        "data": {"source": "beir", "path": str(folder)},
        "model": model
        or {
            "backend": "precomputed",
            "passages": str(folder / "passages.npy"),
            "queries": str(folder / "queries.npy"),
            "vector_precision": "fp16",
        },
        "search": {"top_k": 1000, "memory_mb": memory_mb},
        "evaluate": {"measures": ["mrr@10", "ndcg@10", "recall@1000"]},
        "cache": str(folder / "indexes"),
        "output": str(folder / "results"),
    }
    path = folder / "full.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def run(folder: Path, rows: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Generate a collection, run the benchmark on it, and give its `metrics.json`."""
    size = ["--rows", str(rows), "--dimension", str(arguments.dimension)]
    subprocess.run([sys.executable, __file__, "--generate", str(folder), *size], check=True)
    command = [sys.executable, "-m", "pipeline", "run", str(write_config(folder, arguments.memory_mb))]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    metrics = folder / "results" / "full" / "metrics.json"
    result: dict[str, Any] = json.loads(metrics.read_text(encoding="utf-8"))
    return result


def run_texts(folder: Path, rows: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Generate texts, run the benchmark, kill it at half of the passages and run it again."""
    if not (folder / "qrels" / "test.tsv").exists():
        generate_texts(folder, rows, arguments.model)
    model = {"backend": arguments.backend, "name": arguments.model}
    model |= {"precision": "int16"} if arguments.backend == "native" else {}
    config = write_config(folder, arguments.memory_mb, model)
    command = [sys.executable, "-m", "pipeline", "run", str(config)]
    shards = -(-rows // max(512, min(16_384, -(-rows // 32))))
    for half in (True, False):
        started = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            time.sleep(0.5)
            stored = len([*(folder / "indexes" / "passages").glob("*/rows-*.npy")])
            if half and shards // 2 <= stored < shards:
                process.kill()
        print(f"exit code {process.wait()} after {time.monotonic() - started:.0f} s", flush=True)
    subprocess.run([*command[:3], "plan", str(config), "--passages", "8841823"], check=True, cwd=ROOT)
    result: dict[str, Any] = json.loads((folder / "results" / "full" / "metrics.json").read_text())
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--memory-mb", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where to generate; a temporary folder inside it is used")
    parser.add_argument("--model", help="encode generated texts with it; --folder is kept")
    parser.add_argument("--backend", default="native")
    parser.add_argument("--generate", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.generate:
        generate(arguments.generate, arguments.rows[0])
        draw_vectors(arguments.generate, arguments.rows[0], arguments.dimension)
        return
    machine = hardware()
    print(f"{machine['cpu']}, {machine['cores']} cores; {arguments.dimension} dimensions, stored as fp16")
    print(f"{'passages':>10} {'queries':>8}  {'stage':<9}{'seconds':>9}{'peak MB':>9}{'on disk MB':>12}")
    for rows in arguments.rows:
        if arguments.model:
            result = run_texts(arguments.folder, rows, arguments)
        else:
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                result = run(Path(folder), rows, arguments)
        queries = next(row["items"] for row in result["stages"] if row["stage"] == "queries")
        for row in (row for row in result["stages"] if row["seconds"] is not None):
            print(
                f"{rows:>10,} {queries:>8,}  {row['stage']:<9}{row['seconds']:>9.1f}"
                f"{row['peak_rss_mb']:>9,.0f}{row['bytes'] / 1e6:>12,.0f}",
                flush=True,
            )
        measures = ", ".join(f"{name} {value:.4f}" for name, value in result["metrics"].items())
        print(f"{rows:>10,} {queries:>8,}  {measures}", flush=True)


if __name__ == "__main__":
    main()
