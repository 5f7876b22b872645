"""Tiny collections, and suites of them that were run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("anor", "elis", "ipot", "ored", "undi")]


def write_collection(folder: Path, seed: int, queries: int, passages: int = 60) -> None:
    """A collection in BEIR's layout: each query has words of the one passage that is relevant, and others."""
    draw = random.Random(seed)
    texts = [draw.choices(WORDS, k=12) for _ in range(passages)]
    (folder / "qrels").mkdir(parents=True)
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as corpus:
        for number, words in enumerate(texts):
            corpus.write(json.dumps({"_id": f"p{number}", "text": " ".join(words)}) + "\n")
    with (
        open(folder / "queries.jsonl", "w", encoding="utf-8") as file,
        open(folder / "qrels" / "test.tsv", "w", encoding="utf-8") as qrels,
    ):
        qrels.write("query-id\tcorpus-id\tscore\n")
        for number in range(queries):
            relevant = draw.randrange(passages)
            asked = draw.sample(texts[relevant], 2) + draw.choices(WORDS, k=2)
            file.write(json.dumps({"_id": f"q{number}", "text": " ".join(asked)}) + "\n")
            qrels.write(f"q{number}\tp{relevant}\t1\n")


@pytest.fixture(scope="session")
def three_collections(make_once: Callable[..., Path]) -> Path:
    """A folder of three collections: `small` of 25 queries, `middle` of 30 and `large` of 50."""

    def fill(folder: Path) -> None:
        for seed, (name, queries) in enumerate({"small": 25, "middle": 30, "large": 50}.items()):
            write_collection(folder / name, seed, queries)

    return make_once("three_collections", fill)
