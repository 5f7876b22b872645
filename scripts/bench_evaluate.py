#!/usr/bin/env python3
"""Measures `evaluate` of runs that are hard for it: seconds, and the peak of memory, of a process each.

    .venv/bin/python scripts/bench_evaluate.py even uneven tied

`even` has as many hits for every query; of `uneven` one query has 100,000 times as many as the others; in
`tied` one query's documents all have the score 0. `--against FOLDER` also runs another checkout, in turn.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEASURES = "ndcg@10,mrr,map,recall@100,err@20,judged@10"
EVALUATE = """
import resource, sys, time
sys.path.insert(0, sys.argv[1])
from pipeline import evaluate
start = time.perf_counter()
scored = evaluate(sys.argv[2], sys.argv[3], sys.argv[4])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{time.perf_counter() - start:6.1f} s {peak:7.0f} MiB  {scored.means.round(6).tolist()}")
"""
LENGTHS = {"even": [1000] * 2000, "uneven": [100_000] + [1] * 50_000, "tied": [100_000]}
"""The number of hits of each query."""


def lines(lengths: list[int], tied: bool) -> Iterator[str]:
    """A run in the format of TREC."""
    for query, length in enumerate(lengths):
        for rank in range(length):
            yield f"q{query} Q0 d{(rank * 7919 + query) % 1_000_003} 0 {0 if tied else -rank} t\n"


def judgments(lengths: list[int]) -> Iterator[str]:
    """Every tenth hit, and at least one of each query, is judged, of grades from 0 to 3."""
    for query, length in enumerate(lengths):
        for rank in range(0, length, 10):
            yield f"q{query} 0 d{(rank * 7919 + query) % 1_000_003} {1 + rank // 10 % 3}\n"


def main() -> None:
    """Print a line for each input and checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="*", choices=[*LENGTHS, []], default=[*LENGTHS])
    parser.add_argument("--against", type=Path, help="another checkout")
    arguments = parser.parse_args()
    for name in arguments.inputs:
        with tempfile.TemporaryDirectory() as folder:
            qrels, run = Path(folder, "qrels"), Path(folder, "run")
            qrels.write_text("".join(judgments(LENGTHS[name])), encoding="ascii")
            run.write_text("".join(lines(LENGTHS[name], name == "tied")), encoding="ascii")
            for checkout in [ROOT, *([arguments.against] if arguments.against else [])]:
                command = [sys.executable, "-c", EVALUATE, str(checkout), str(qrels), str(run), MEASURES]
                said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
                last = said.stdout or (said.stderr.strip().splitlines() or ["killed"])[-1]
                print(f"{name:7} {last.strip()}  {checkout}")


if __name__ == "__main__":
    main()
