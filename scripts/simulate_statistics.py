#!/usr/bin/env python3
"""Simulates what intervals, tests, gates and judged labels promise, in one Markdown table.

    .venv/bin/python scripts/simulate_statistics.py                # all: at most 20 minutes on two cores
    .venv/bin/python scripts/simulate_statistics.py intervals gates --samples 4000
    .venv/bin/python scripts/simulate_statistics.py --worst        # of each figure the worst cell alone

A row is a figure of a cell, a case whose truth is known: before, by the plain method that is named or by t
alone, and after, by what the package does. Figures are percentages, if they do not say otherwise. Each cell
has its own seed, so that its figures do not depend on what else is run.

`--rows QRELS RUN RUN…` names real runs, and may be repeated, one for each collection; by default those
of TREC DL 2019 beside the repository, where they are. Those of CACM (`data: {source: beir, path: …/cacm}`,
`search: {top_k: 100}`) are `results/*/run.trec` of `benchmarco run`: bm25, all-minilm-l6-v2,
all-mpnet-base-v2, splade-tiny and `fuse` of the first two by rrf.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from multiprocessing import get_context
from pathlib import Path
from zlib import crc32

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from simulations import gates, groups, judging, means, pairs, real
from simulations.values import Cell, Figure, Simulation, random
from threadpoolctl import threadpool_limits

from pipeline.metrics import paired
from pipeline.studies.gate import margin_tests

SIMULATIONS: dict[str, Simulation] = {
    "intervals": means.intervals,
    "suites": means.suites,
    "shared": means.shared,
    "clusters": means.clusters,
    "collections": means.collections,
    "losses": pairs.losses,
    "tests": pairs.tests,
    "detect": pairs.detect,
    "gates": gates.gates,
    "suite_gates": gates.suite_gates,
    "rare_losses": gates.rare_losses,
    "many_gates": gates.many_gates,
    "needed": gates.needed,
    "spreads": groups.spreads,
    "groups": groups.groups,
    "judge": judging.judge,
    "bets": judging.bets,
    "until_certain": judging.until_certain,
    "labels": judging.labels,
    "separated": real.separated,
    "real": real.drawn,
    "real_detect": real.detect,
}
DL19 = Path(__file__).resolve().parents[2] / "shared" / "data" / "msmarco-dl19"
ERRORS = (
    "false",
    "any",
    "of 10",
    "shown and misses",
    "marked",
    "missed",
    "bets: false",
    "bets: labels",
    "labels",
    "pairs",
    "width",
    "verdicts",
)
"""How the names of figures begin whose worst is the highest."""

cells: list[tuple[str, Cell]] = []
"""With the promise of each; processes are forked after it is filled."""


def simulate(number: int) -> tuple[list[Figure], float]:
    """The figures of a cell, and the seconds they took."""
    promise, cell = cells[number]
    seed = crc32(f"{promise} {cell.case} {cell.queries}".encode())
    random.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    start = time.process_time()
    return list(cell.simulate()), time.process_time() - start


def main() -> None:
    """Simulate the promises that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("promises", nargs="*", choices=[*SIMULATIONS, []], default=[])
    parser.add_argument("--samples", type=int, default=2000, help="of a cheap cell; a costly one has a share")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--worst", action="store_true", help="print only the worst cell of each figure")
    parser.add_argument("--rows", nargs="+", action="append", default=[], help="judgments, and runs")
    arguments = parser.parse_args()
    start = time.perf_counter()
    dl19 = [str(DL19 / "qrels/full.trec"), *map(str, sorted((DL19 / "runs").glob("*.trec.gz")))]
    real.ROWS += arguments.rows or ([dl19] if DL19.is_dir() else [])
    paired.PERMUTATIONS = margin_tests.RESAMPLES = 999
    for promise in arguments.promises or SIMULATIONS:
        cells.extend((promise, cell) for cell in SIMULATIONS[promise](arguments.samples))
    seconds: defaultdict[str, float] = defaultdict(float)
    rows: list[tuple[str, Cell, Figure]] = []
    print("| promise | case | queries | figure | before | after |\n|---|---|---:|---|---:|---:|")
    alone = threadpool_limits, (1,)  # as the processes share the cores
    with get_context("fork").Pool(arguments.processes, *alone) as pool:
        for (promise, cell), (figures, took) in zip(
            cells, pool.imap(simulate, range(len(cells))), strict=True
        ):
            seconds[promise] += took
            rows += [(promise, cell, figure) for figure in figures]
            if not arguments.worst:
                print_rows(rows[-len(figures) :])
    if arguments.worst:
        print_rows(worst_of(rows))
    each = ", ".join(f"{promise} {spent:.0f}" for promise, spent in seconds.items())
    print(f"\n{time.perf_counter() - start:.0f} seconds; seconds of a processor: {each}", flush=True)


def print_rows(rows: list[tuple[str, Cell, Figure]]) -> None:
    """Print rows of the table."""
    for promise, cell, figure in rows:
        print(f"| {' | '.join((promise, cell.case, cell.queries, *figure))} |", flush=True)


def worst_of(rows: list[tuple[str, Cell, Figure]]) -> list[tuple[str, Cell, Figure]]:
    """Of each figure of a promise the row whose value after is the worst."""
    worst: dict[tuple[str, str], tuple[str, Cell, Figure]] = {}
    for row in rows:
        promise, _, figure = row
        lowest, key = not figure.name.startswith(ERRORS), (promise, figure.name)
        if figure.after and (
            key not in worst or (float(figure.after) < float(worst[key][2].after)) == lowest
        ):
            worst[key] = row
    return list(worst.values())


if __name__ == "__main__":
    main()
