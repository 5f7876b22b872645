#!/usr/bin/env python
"""How many passages a second the processors can hand to a card: texts to batches of token ids, and rows back.

    .venv/bin/python scripts/bench_tokens.py MODEL_FOLDER --passages 20000 --processes 1 2

The network is replaced by zeros, so that what is measured is what processors do for a GPU: tokenizing,
batching and putting rows in order, by `pipeline.encoders.batching`. `transformers` is the tokenizer as
FlagModel calls it, on batches of 256 texts sorted by length. Each of several processes has its share of the
texts and of the processors, as with `engine.devices: [cuda:0, cuda:0]`. Setups take turns, round after round;
ratios are to the first one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from bench_gpu import LENGTH, passages
from harness import in_turn

from pipeline.core.display import silent
from pipeline.encoders.batching import RowArrays, TokenBatch
from pipeline.encoders.encoder import Encoder
from pipeline.encoders.torch.backend import GPU_TOKENS, GPU_WIDTHS

PART = 16384  # texts of a shard
DIMENSION = 384


class NoNetwork:
    """A backend with a GPU's batches, whose network takes no time."""

    pad_id, token_budget, width_multiple, embedded = 0, GPU_TOKENS, GPU_WIDTHS, None
    computes_padding, reads_padding = True, False

    def __init__(self, folder: str) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[np.ndarray, RowArrays]]:
        """Zeros for each batch."""
        for batch in batches:
            yield batch.rows, np.zeros((len(batch.rows), DIMENSION), np.float32)


def work(folder: str, how: str, count: int) -> None:
    """A process's part of each round: wait for a line, tokenize, and answer with one."""
    texts = passages(count)
    if how == "ours":
        model = SimpleNamespace(prompts={"passages": ("", "")}, max_lengths={"passages": LENGTH})
        encoder = Encoder(model, NoNetwork(folder))  # type: ignore[arg-type]

        def once() -> None:
            parts = [texts[start : start + PART] for start in range(0, len(texts), PART)]
            with silent("", None, "") as bar:
                for _ in encoder.encode_parts(parts, "passages", bar):
                    pass
    else:
        from transformers import AutoTokenizer

        library = AutoTokenizer.from_pretrained(folder)

        def once() -> None:
            ordered = sorted(texts, key=len, reverse=True)
            for start in range(0, len(texts), 256):
                library(
                    ordered[start : start + 256],
                    padding=True,
                    truncation=True,
                    max_length=LENGTH,
                    return_tensors="pt",
                )

    for _ in sys.stdin:
        once()
        print(flush=True)


def main() -> None:
    """Time each setup in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a folder with tokenizer.json")
    parser.add_argument("--passages", type=int, default=20000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", choices=("ours", "transformers"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.model, given.work, given.passages)
        return
    cores = len(os.sched_getaffinity(0))
    setups = [("transformers", 1), *(("ours", count) for count in given.processes)]
    teams = {}
    for how, count in setups:
        command = [
            sys.executable,
            __file__,
            given.model,
            "--work",
            how,
            "--passages",
            str(given.passages // count),
        ]
        environment = {**os.environ, "RAYON_NUM_THREADS": str(max(cores // count, 1)), "HF_HUB_OFFLINE": "1"}
        teams[f"{how}, {count} process{'es' * (count > 1)}"] = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
            for _ in range(count)
        ]

    def together(team: list[subprocess.Popen[str]]) -> None:
        for process in team:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        for process in team:
            assert process.stdout
            process.stdout.readline()

    timed = in_turn({name: partial(together, team) for name, team in teams.items()}, given.rounds)
    first = next(iter(timed.values())).median
    print(f"{cores} processors, {given.passages:,} passages\n| | passages/s | x |\n|---|---:|---:|")
    for name, each in timed.items():
        print(f"| {name} | {given.passages / each.median:,.0f} | {first / each.median:.2f} |")
    for process in (process for team in teams.values() for process in team):
        process.kill()


if __name__ == "__main__":
    main()
