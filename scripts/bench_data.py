"""Loading of passages: rows per second and memory, against a plain `json.loads` loop.

Usage: python scripts/bench_data.py [--rows 1000000] [--layouts beir msmarco] [--folder DIR]

Generates a collection of passages as long as MS MARCO's (about 340 characters), loads it with `pipeline.data`
from each layout, and reads it into a dict as many scripts do; each in its own process, for its peak memory.
`--rows 8841823` is MS MARCO's size; it needs about 10 GB of disk in `--folder`, which is emptied afterwards.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

QUERIES = 6_980
WORDS = 2_000


def generate(folder: Path, rows: int) -> None:
    """Write a collection in the layouts of BEIR and MS MARCO."""
    rng = np.random.default_rng(0)
    words = [f"w{''.join(chr(97 + letter) for letter in rng.integers(0, 26, 5))}" for _ in range(WORDS)]
    long_text = " ".join(words[number] for number in rng.integers(0, WORDS, 20_000))
    starts = rng.integers(0, len(long_text) - 1000, rows)
    lengths = rng.integers(120, 560, rows)
    (folder / "qrels").mkdir(parents=True)
    with open(folder / "corpus.jsonl", "w") as corpus, open(folder / "collection.tsv", "w") as collection:
        for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            text = long_text[start : start + length]
            corpus.write(f'{{"_id": "{row}", "title": "", "text": "{text}"}}\n')
            collection.write(f"{row}\t{text}\n")
    queries = [(f"q{row}", "which words stand there") for row in range(min(QUERIES, rows))]
    judged = rng.integers(0, rows, len(queries)).tolist()
    with open(folder / "queries.jsonl", "w") as file:
        file.writelines(json.dumps({"_id": name, "text": text}) + "\n" for name, text in queries)
    (folder / "queries.test.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in queries))
    pairs = list(zip(queries, judged, strict=True))
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "test.tsv").write_text(header + "".join(f"{q}\t{p}\t1\n" for (q, _), p in pairs))
    (folder / "qrels.test.tsv").write_text("".join(f"{q}\t0\t{p}\t1\n" for (q, _), p in pairs))


def load_collection(folder: Path, source: str) -> int:
    """Load with the project's own loader; the passages loaded."""
    from pipeline.cli.terminal import progress
    from pipeline.config import SOURCES
    from pipeline.data import load
    from pipeline.storage.artifacts import Draft

    with tempfile.TemporaryDirectory(dir=folder) as target:
        config = SOURCES.make(source=source, path=str(folder))
        return int(load(config, Draft(Path(target)), progress)["passages"])


def load_dict(folder: Path) -> int:
    """The plain loop: every passage into a dict; the passages loaded."""
    corpus = {}
    with open(folder / "corpus.jsonl", encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            corpus[record["_id"]] = {"title": record["title"], "text": record["text"]}
    return len(corpus)


def measure(folder: Path, how: str) -> None:
    """Load in this process and print what it took, as JSON."""
    start = time.perf_counter()
    rows = load_dict(folder) if how == "dict" else load_collection(folder, how)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"rows": rows, "seconds": seconds, "peak_mb": peak / 1024}))


def step(rows: int, how: str, folder: Path) -> str:
    """Generate or measure in a process of its own, started from this small one; what it printed.

    The kernel counts the memory of the process that starts another towards the other's peak.
    """
    command = [sys.executable, __file__, "--rows", str(rows), "--step", how, str(folder)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    """Generate, measure each way in its own process, print a table, remove what was generated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--layouts", nargs="+", default=["beir", "msmarco"], choices=["beir", "msmarco"])
    parser.add_argument("--folder", type=Path, help="where to generate; a temporary folder inside it is used")
    parser.add_argument("--step", nargs=2, metavar=("HOW", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        how, folder = options.step[0], Path(options.step[1])
        generate(folder, options.rows) if how == "generate" else measure(folder, how)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name) / "collection"
        step(options.rows, "generate", folder)
        size = (folder / "corpus.jsonl").stat().st_size
        print(f"{options.rows:,} passages, corpus.jsonl {size / 1e9:.2f} GB")
        print(f"{'loaded by':<28}{'rows/s':>12}{'seconds':>10}{'peak MB':>10}")
        for how in [*options.layouts, "dict"]:
            result = json.loads(step(options.rows, how, folder))
            label = "json.loads into a dict" if how == "dict" else f"pipeline.data, {how}"
            rate = result["rows"] / result["seconds"]
            print(f"{label:<28}{rate:>12,.0f}{result['seconds']:>10.1f}{result['peak_mb']:>10,.0f}")


if __name__ == "__main__":
    main()
