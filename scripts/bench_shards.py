#!/usr/bin/env python
"""How long a device waits between two shards, with an encoder that computes nothing.

    .venv/bin/python scripts/bench_shards.py --shards 4 --rows 8192 --rate 4000

The encoder stands for a GPU: it sleeps for as long as a device of that rate takes for a batch, holds two
batches at a time, and returns made-up vectors. All else is real: tokenizer, checks, hashes, files. `busy` are
the seconds that it slept, `idle` those between its first batch and its last in which it had none, `gap` the
median time between the last batch of a shard and the first of the next. `--rate 0` is a device that takes no
time.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer

from pipeline import run_benchmark
from pipeline.config import BACKENDS, Config, EncoderSettings
from pipeline.encoders import TokenBatch
from pipeline.models import ResolvedModel
from pipeline.retrievers import rows


class SleepingSettings(EncoderSettings):
    """A model whose tokenizer is used alone."""

    backend: Literal["sleeping"] = EncoderSettings.narrowed("backend")
    output: Literal["dense"] = EncoderSettings.narrowed("output", "dense")


class Sleeping:
    """A device that computes nothing; `spans` are the beginning and the end of each batch, and its texts."""

    pad_id, token_budget, width_multiple, computes_padding = 0, 65536, 16, True
    dimension = 1024
    rate = 0.0
    spans: list[tuple[float, float, int]]

    def __init__(self, model: ResolvedModel) -> None:
        self.tokenizer = Tokenizer.from_file(str(model.files.folder() / "tokenizer.json"))
        row = np.random.default_rng(0).standard_normal(self.dimension).astype(np.float32)
        self.row = row / np.linalg.norm(row)

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Any, Any]]:
        """Send batches to the device, which is one thread."""
        under_way = collections.deque[tuple[Any, Future[Any]]]()
        with ThreadPoolExecutor(1) as device:
            for batch in batches:
                under_way.append((batch.rows, device.submit(self.compute, len(batch.rows))))
                if len(under_way) > 2:
                    numbers, vectors = under_way.popleft()
                    yield numbers, vectors.result()
            for numbers, vectors in under_way:
                yield numbers, vectors.result()

    def compute(self, texts: int) -> Any:
        """Sleep as long as the device computes some texts."""
        started = time.perf_counter()
        if self.rate:
            time.sleep(texts / self.rate)
        self.spans.append((started, time.perf_counter(), texts))
        return np.tile(self.row, (texts, 1))


def load_sleeping(model: Any, prepared: Path | None) -> Sleeping:
    """The device, with the model's tokenizer."""
    return Sleeping(model)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rows", type=int, default=8192, help="of a shard")
    parser.add_argument("--words", type=int, default=20, help="of a passage, on average")
    parser.add_argument("--rate", type=float, default=4000, help="texts a second of the device; 0 is no time")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rows.SHARDS = arguments.shards
    Sleeping.rate = arguments.rate
    BACKENDS.register(SleepingSettings, load_sleeping)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_collection(folder / "data", arguments.shards * arguments.rows, arguments.words)
        for number in range(arguments.rounds):
            report(measure(folder, number), arguments.rows)


def write_collection(folder: Path, passages: int, words: int) -> None:
    """Write a collection of made-up sentences in BEIR's layout."""
    chosen, known = random.Random(0), ("water", "city", "music", "engine", "forest", "letter", "river")
    (folder / "qrels").mkdir(parents=True)
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as file:
        for number in range(passages):
            count = chosen.randint(words // 2, words * 3 // 2)
            text = " ".join(f"{chosen.choice(known)} {number % 97}" for _ in range((count + 1) // 2))
            file.write(json.dumps({"_id": f"p{number}", "text": f"{number} {text}"}) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "river"}\n', encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tp1\t1\n", encoding="utf-8")


def measure(folder: Path, number: int) -> list[tuple[float, float, int]]:
    """The batches of the passages, in a run that finds nothing in its cache."""
    Sleeping.spans = []
    config = {
        "name": f"shards-{number}",
        "data": {"source": "beir", "path": str(folder / "data")},
        "model": {"backend": "sleeping", "name": "all-minilm-l6-v2", "device": "cpu"},
        "search": {"top_k": 10},
        "evaluate": {"measures": ["ndcg@10"]},
        "cache": str(folder / f"cache-{number}"),
        "output": str(folder / "results"),
    }
    run_benchmark(Config.model_validate(config))
    return Sleeping.spans[:-1]  # the query comes last


def report(spans: list[tuple[float, float, int]], shard_rows: int) -> None:
    ends = np.cumsum([texts for _, _, texts in spans])
    last = [number for number, end in enumerate(ends[:-1]) if end % shard_rows == 0]
    gaps = [spans[number + 1][0] - spans[number][1] for number in last]
    wall = spans[-1][1] - spans[0][0]
    busy = sum(end - start for start, end, _ in spans)
    print(f"{wall:.2f} s, busy {busy:.2f} s, idle {wall - busy:.2f} s, gap {statistics.median(gaps):.3f} s")


if __name__ == "__main__":
    main()
