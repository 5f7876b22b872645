#!/usr/bin/env python
"""Where the time of the `native` backend goes: each step of a layer alone, against a whole run.

    .venv/bin/python scripts/bench_native.py
    .venv/bin/python scripts/bench_native.py --model bge-base-shape --passages 300

Each step is done again and again on the same rows, by all cores at once, so its inputs are in the cache and
no other step is between. What the steps take together is the machine's limit for this arithmetic. A run does
them once for each token and layer. It also fetches weights and activations from memory, tokenizes, looks up
embeddings, and compares a few texts with fp32. Steps and runs are timed in turn; the best and the median of
all rounds are printed. Of a network that pools first tokens, whose last layer is computed for them alone, the
last line is its rate over what it would be without that layer.
"""

from __future__ import annotations

import copy
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from bench_encode import layer_shape, named, ours, parser_of, passages
from numba import njit

from pipeline.config import BACKENDS
from pipeline.core import machine
from pipeline.encoders import resolve
from pipeline.encoders.native import TOKENS
from pipeline.models import token_counter
from pipeline.native import amx, attention, layers
from pipeline.native.attention import EVERYWHERE
from pipeline.native.compiling import OPTIONS
from pipeline.native.integers import aligned_bytes
from pipeline.native.layers import (
    MOST_TOKENS,
    Linear,
    add_and_normalize,
    linear,
)
from pipeline.native.vectors import PackedModel
from pipeline.storage.store import Store

KINDS = ("linear layers", "attention", "normalization")


@njit(**OPTIONS)
def compute(times: int, x: Any, layer: Linear, gelu: bool, space: Any, out: Any) -> None:
    amx.begin(layer.planes)
    for _ in range(times):
        linear(x, layer, 0, gelu, space, out)
    amx.end(layer.planes)


@njit(**OPTIONS)
def multiply(times: int, x: Any, layer: Linear, gelu: bool, space: Any, out: Any) -> None:
    amx.begin(layer.planes)
    for _ in range(times):
        layers.multiply(
            layer.pairs, layer.planes, 0, 0, x.shape[1], layer.factors[0], layer.bias[0], gelu, space, out
        )
    amx.end(layer.planes)


@njit(**OPTIONS)
def normalize(times: int, x: Any, more: Any, ones: Any, width: int) -> None:
    for _ in range(times):
        add_and_normalize(x, more, ones, ones, width, np.float32(1e-12))


@njit(**OPTIONS)
def attend(
    times: int, query: Any, starts: Any, key_value: Any, texts: Any, heads: int, size: int,
    memory: Any, out: Any,
) -> None:  # fmt: skip
    for _ in range(times):
        attention.attend(query, starts, key_value, texts, heads, size, EVERYWHERE, None, memory, out)


def aligned_copy(value: Any) -> Any:
    """A copy of which every array begins at a cache line, as the arrays of the backend do."""
    if isinstance(value, tuple):
        copies = [aligned_copy(each) for each in value]
        return type(value)(*copies) if hasattr(value, "_fields") else tuple(copies)
    if not isinstance(value, np.ndarray):
        return value
    copied = aligned_bytes(value.nbytes).view(value.dtype).reshape(value.shape)
    copied[:] = value
    return copied


class Steps:
    """The steps of a network's layers, and the seconds that each takes for MOST_TOKENS tokens in a thread.

    Args:
        shape: Layers, width, and width of the feed-forward layer.
        heads: Heads of attention.
        lengths: int64, tokens of each text.
        first_alone: Whether the last layer is computed for each text's first token alone.
    """

    def __init__(self, shape: tuple[int, int, int], heads: int, lengths: Any, first_alone: bool) -> None:
        self.layers, width, inner = shape
        self.tokens, self.texts, self.first_alone = int(lengths.sum()), len(lengths), first_alone
        self.threads = machine.cores()
        self.shapes = [(width, width), (width, 2 * width), (width, width), (width, inner), (inner, width)]
        count = max(round(TOKENS / lengths.mean()), 1)  # texts of a batch, of all lengths
        chosen = np.quantile(lengths, (np.arange(count) + 0.5) / count).astype(np.int64)
        texts = np.concatenate([[0], np.cumsum(chosen)])
        self.in_batch = int(texts[-1])
        self.work: dict[str, tuple[Any, list[Any]]] = {}
        for k, m in set(self.shapes):
            layer = Linear(np.ones((1, m * k // 2), np.int32), *np.ones((2, 1, m), np.float32))
            layer = layer.on_tiles() if machine.has_amx() else layer
            space = layers.workspace(k, m)
            x, out = (np.ones((MOST_TOKENS, width), np.float32) for width in (k, m))
            self.add(f"linear {k} {m}", compute, x, layer, m == inner, space, out)
            self.add(f"products {k} {m}", multiply, x, layer, m == inner, space, out)
        states = np.ones((2, MOST_TOKENS, width), np.float32)
        self.add("normalization", normalize, states[0], states[1], states[1, 0], width)
        key_value = np.random.default_rng(0).standard_normal((self.in_batch, 2 * width), np.float32)
        for name, starts in (("attention", texts), ("attention of first tokens", np.arange(len(texts)))):
            query = np.ones((starts[-1], width), np.float32)
            memory = attention.memory(texts, heads, width // heads, width)
            self.add(
                name, attend, query, starts, key_value, texts, heads, width // heads, memory, query.copy()
            )
        self.seconds: dict[str, list[float]] = {name: [] for name in self.work}

    def add(self, name: str, kernel: Any, *arguments: Any) -> None:
        """A step; each thread has a copy of the arrays. It is compiled by doing it once."""
        self.work[name] = kernel, [aligned_copy(arguments) for _ in range(self.threads)]
        kernel(1, *arguments)

    def measure(self, seconds: float = 0.1) -> None:
        """Do each step, in all threads at once, for so long."""
        with ThreadPoolExecutor(self.threads) as pool:
            for name, (kernel, arguments) in self.work.items():
                times, took = 0, 0.0
                while took < seconds:
                    times = max(2 * times, 1)
                    started = time.perf_counter()
                    list(pool.map(partial(kernel, times), *zip(*arguments, strict=True)))
                    took = time.perf_counter() - started
                rows = self.in_batch if name.startswith("attention") else MOST_TOKENS
                self.seconds[name].append(took / times * MOST_TOKENS / rows)

    def totals(self, summary: Any) -> dict[str, float]:
        """What each kind of step takes of a run with all texts, in seconds."""
        took = {name: summary(rounds) for name, rounds in self.seconds.items()}
        whole = self.layers - self.first_alone
        last = self.first_alone * self.texts / self.tokens  # share of tokens that the last layer computes
        made = dict.fromkeys(("linear layers", "products"), 0.0)
        for k, m in self.shapes:
            all_tokens = (k, m) == self.shapes[1]  # keys and values are those of all tokens
            count = whole + (self.first_alone if all_tokens else last)
            made["linear layers"] += count * took[f"linear {k} {m}"]
            made["products"] += count * took[f"products {k} {m}"]
        made["normalization"] = 2 * (whole + last) * took["normalization"]
        made["attention"] = whole * took["attention"] + self.first_alone * took["attention of first tokens"]
        return {kind: each * self.tokens / MOST_TOKENS / self.threads for kind, each in made.items()}


def share_of_free_last_layer(network: PackedModel, length: int, rounds: int) -> float:
    """The rate of a network that pools first tokens over what it would be if its last layer cost nothing."""

    def without_last(kind: Any) -> Any:
        return type(kind)(*(array[:-1].copy() for array in kind))

    texts = max(TOKENS // length, 1)
    ids, mask = (
        np.random.default_rng(0).integers(1000, 20_000, (texts, length)),
        np.ones((texts, length), np.int64),
    )
    fewer, weights = copy.copy(network), network.weights
    fewer.weights = weights._replace(
        **{name: without_last(getattr(weights, name)) for name in weights._fields[3:]}  # of layers
    )
    took: dict[bool, list[float]] = {True: [], False: []}
    with ThreadPoolExecutor(machine.cores()) as pool:
        for _ in range(rounds + 1):
            for whole, each in ((True, network), (False, fewer)):
                started = time.perf_counter()
                list(pool.map(partial(each.hidden, ids, mask), [whole] * 4 * machine.cores()))
                took[whole].append(time.perf_counter() - started)
    return statistics.median(took[False][1:]) / statistics.median(took[True][1:])


def main() -> None:
    arguments = parser_of(__doc__, rounds=5).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        texts, corpus = passages(store, arguments.passages)
        name = named(arguments.model, Path(folder))
        opener = resolve(BACKENDS.make(name=name, backend="native", precision="int16"))
        model = opener.model
        encode, count = ours(name, "native", "int16", store, corpus), token_counter(model.tokenizer)
        lengths = np.minimum(count(texts), model.max_lengths["passages"])
        steps = Steps(
            layer_shape(name), model.card.config["num_attention_heads"], lengths, model.pooling == "cls"
        )
        encode(texts[: len(texts) // 4])
        runs = []
        for _ in range(arguments.rounds):
            steps.measure()
            started = time.perf_counter()
            encode(texts)
            runs.append(time.perf_counter() - started)
        free = 0.0
        if steps.first_alone:
            network = opener.open(store).backend.network
            free = share_of_free_last_layer(network, round(lengths.mean()), arguments.rounds)
    cpu = machine.hardware()["cpu"]
    print(
        f"{len(texts)} passages, {steps.tokens:,} tokens, {arguments.rounds} rounds, {steps.threads} x {cpu}"
    )
    columns = []
    for summary in (min, statistics.median):
        made = steps.totals(summary)
        kinds = [made[kind] for kind in KINDS]
        columns.append([made["products"], *kinds, sum(kinds), summary(runs)])
    print("products by AMX" if machine.has_amx() else "products by VNNI")
    print(f"{'seconds':<32}{'best':>8}{'median':>8}")
    for kind, *took in zip(
        ["products, scaled", *KINDS, "all steps, each alone", "a run"],
        *columns,
        strict=True,
    ):
        print(f"{kind:<32}" + "".join(f"{each:>8.3f}" for each in took))
    for kind, place in (("all steps, of a run", -2), ("products alone, of a run", 0)):
        print(f"{kind:<32}" + "".join(f"{column[place] / column[-1]:>8.0%}" for column in columns))
    if steps.first_alone:
        print(f"{'of its rate with a free last layer':<36}{free:>8.0%}")


if __name__ == "__main__":
    main()
