#!/usr/bin/env python
"""Speed of rerankers, against FlagEmbedding's own `compute_score`.

    .venv/bin/python scripts/bench_rerank.py --queries 43 --depth 20 --rounds 3
    .venv/bin/python scripts/bench_rerank.py --shape minilm --queries 43 --depth 100
    .venv/bin/python scripts/bench_rerank.py --trained 400 --depth 100 --rounds 1

The pairs are the 43 queries of TREC DL 2019 and the passages that BM25 finds for them, of
../shared/data/msmarco-dl19. The model has the shape of bge-reranker-base (XLM-RoBERTa-base, 12 layers of
768), or of ms-marco-MiniLM-L6, its weights random, and a tokenizer trained on these passages, so that a token
is about as long as the real one's. With --trained it is all-MiniLM-L6-v2 with a trained head, so that scores
have the range of a reranker's. Every reranker scores the same pairs in turn, round after round, in one
process; loading and one warming pass are not counted. The ratio is to `FlagReranker.compute_score` in the
same round, as median and range over the rounds. The largest difference of scores is given as a share of their
range, and with it how many neighbours in FlagReranker's order of each query are in the same order: with
--trained and a depth of 100 of more than 2,000, so that one in a thousand shows.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from random_reranker import write_reranker

from pipeline.config import RERANKERS
from pipeline.core.progress import silent
from pipeline.core.records import Float32
from pipeline.encoders import pairs as rerankers
from pipeline.encoders.usage import Usage
from pipeline.storage.store import Store

SLICE = Path(__file__).resolve().parents[2] / "shared" / "data" / "msmarco-dl19"
OURS: dict[str, dict[str, str]] = {
    "flag": {"backend": "flag"},
    "openvino": {"backend": "openvino"},
}
SHAPES: dict[str, dict[str, int]] = {
    "bge-reranker-base": {},
    "minilm": {
        "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
    },
}  # fmt: skip
VOCABULARY = 20_000
TRAINING_BATCH, TRAINING_PAIRS = 16, 48  # pairs computed at once, and pairs of each grade
Pairs = list[tuple[str, str]]
Score = Callable[[Pairs], Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="bge-reranker-base")
    parser.add_argument(
        "--trained",
        type=int,
        metavar="STEPS",
        help="all-MiniLM-L6-v2 instead, its head trained for so many steps by the judgments of every other "
        "query; the queries between them are scored",
    )
    parser.add_argument("--queries", type=int, default=43)
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="pairs per batch of compute_score")
    parser.add_argument(
        "--only", nargs="*", default=OURS, choices=OURS, help="rerankers besides FlagReranker"
    )
    arguments = parser.parse_args()
    groups = real_pairs(arguments.queries, arguments.depth)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        if arguments.trained:
            groups = groups[::2]
            model = trained_model(path, {group[0][0] for group in groups}, arguments.trained)
        else:
            model = random_model(path, SHAPES[arguments.shape], groups)
        scorers = {"FlagReranker": peer(model, arguments.batch)}
        scorers |= {name: ours(name, model, Store(Path(folder) / "store")) for name in arguments.only}
        compare(scorers, groups, arguments.rounds)


def texts_of(name: str) -> dict[str, str]:
    """The texts of one of the slice's files by their ids."""
    opened = gzip.open if name.endswith(".gz") else open
    with opened(SLICE / name, "rt", encoding="utf-8") as file:
        return {record["_id"]: record["text"] for record in map(json.loads, file)}


def real_pairs(queries: int, depth: int) -> list[Pairs]:
    """For each query its pairs with the best passages of BM25 that are in the slice."""
    texts, asked = texts_of("corpus.jsonl.gz"), texts_of("queries.jsonl")
    found: dict[str, Pairs] = {}
    with gzip.open(SLICE / "runs" / "bm25.trec.gz", "rt", encoding="utf-8") as file:
        for query, _, passage, *_ in map(str.split, file):
            if passage in texts and len(found.setdefault(query, [])) < depth:
                found[query].append((asked[query], texts[passage]))
    return list(found.values())[:queries]


def random_model(folder: Path, shape: dict[str, int], groups: list[Pairs]) -> str:
    """A cross-encoder of the shape of XLM-RoBERTa-base, or another, its weights random."""
    import torch

    torch.manual_seed(0)
    texts = (text for pair in itertools.chain(*groups) for text in pair)
    write_reranker(folder, texts, VOCABULARY, 0.05, **shape)
    return str(folder)


def trained_model(folder: Path, held_out: set[str], steps: int) -> str:
    """all-MiniLM-L6-v2 with a head that is trained by the judgments of queries that are not scored.

    `held_out` are the texts of those that are. The network below the head stays as it is. The loss is the
    cross-entropy of a pair's logit and its grade as a share of the highest; each grade has as many pairs.
    """
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification

    from pipeline.models.files import find_model

    source = find_model("all-minilm-l6-v2", None, False).folder()
    torch.manual_seed(0)
    network = BertForSequenceClassification.from_pretrained(source, num_labels=1).eval()
    tokenizer = AutoTokenizer.from_pretrained(source)
    first: list[torch.Tensor] = []
    grades: list[float] = []
    pairs = judged_pairs(held_out)
    for start in range(0, len(pairs), TRAINING_BATCH):
        chosen = pairs[start : start + TRAINING_BATCH]
        asked, answers, given = zip(*chosen, strict=True)
        inputs = tokenizer(
            list(asked), list(answers), truncation=True, max_length=112, padding=True, return_tensors="pt"
        )
        with torch.no_grad():
            first.append(network.bert(**inputs).last_hidden_state[:, :1])
        grades += given
    states, wanted = torch.cat(first), torch.tensor(grades)
    head = [*network.bert.pooler.parameters(), *network.classifier.parameters()]
    optimizer = torch.optim.AdamW(head, lr=1e-3)
    for _ in range(steps):
        logits = network.classifier(network.bert.pooler(states))[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def judged_pairs(held_out: set[str]) -> list[tuple[str, str, float]]:
    """Queries, passages and grades as a share of the highest; no query with one of the texts `held_out`."""
    queries, passages = texts_of("queries.jsonl"), texts_of("corpus.jsonl.gz")
    by_grade: dict[int, list[tuple[str, str, float]]] = {}
    with open(SLICE / "qrels" / "test.tsv", encoding="utf-8") as file:
        for query, passage, grade in map(str.split, itertools.islice(file, 1, None)):
            if queries[query] not in held_out:
                pair = (queries[query], passages[passage], int(grade) / 3)
                by_grade.setdefault(int(grade), []).append(pair)
    draw = np.random.default_rng(0)
    return [
        pairs[row]
        for pairs in by_grade.values()
        for row in draw.choice(len(pairs), TRAINING_PAIRS, replace=False)
    ]


def peer(model: str, batch: int) -> Score:
    """FlagEmbedding's reranker."""
    from FlagEmbedding import FlagReranker

    flag = FlagReranker(model, devices=["cpu"], batch_size=batch)
    return lambda pairs: flag.compute_score([list(pair) for pair in pairs])


def ours(name: str, model: str, store: Store) -> Score:
    """One of our backends in a precision, loaded."""
    config = RERANKERS.make(name=model, **OURS[name])
    scorer = rerankers.ready(config, rerankers.resolve(config), store).load()

    def score(pairs: Pairs) -> Float32:
        with silent("", None, "") as bar:
            scores: Float32 = scorer.score(pairs, Usage(), bar)
        return scores

    return score


def compare(scorers: dict[str, Score], groups: list[Pairs], rounds: int) -> None:
    """Time every reranker in every round, and print a line for each."""
    pairs = list(itertools.chain(*groups))
    scores = {name: np.array(score(pairs[:64]), np.float64) for name, score in scorers.items()}  # warms
    seconds: dict[str, list[float]] = {name: [] for name in scorers}
    for _ in range(rounds):
        for name, score in scorers.items():
            started = time.perf_counter()
            scores[name] = np.array(score(pairs), np.float64)
            seconds[name].append(time.perf_counter() - started)
    first = next(iter(scorers))
    print(f"{len(pairs)} pairs of {len(groups)} queries")
    print("| reranker | pairs/s | ratio | range of ratios | largest difference | neighbours in order |")
    print("|---|---|---|---|---|---|")
    for name, taken in seconds.items():
        ratios = [one / other for one, other in zip(seconds[first], taken, strict=True)]
        difference = np.abs(scores[name] - scores[first]).max() / np.ptp(scores[first])
        print(
            f"| {name} | {len(pairs) / statistics.median(taken):.1f} | {statistics.median(ratios):.2f} | "
            f"{min(ratios):.2f} to {max(ratios):.2f} | {difference:.1e} | "
            f"{in_order(scores[first], scores[name], groups)} |"
        )


def in_order(expected: Any, found: Any, groups: list[Pairs]) -> str:
    """How many neighbours in the expected order of a query's passages are in that order."""
    right = total = start = 0
    for group in groups:
        order = start + np.argsort(-expected[start : start + len(group)], kind="stable")
        right += int((np.diff(found[order]) <= 0).sum())
        total += len(order) - 1
        start += len(group)
    return f"{right / total:.2%}: {right} of {total}"


if __name__ == "__main__":
    main()
