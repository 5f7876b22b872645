"""How many vectors an index is trained on at least, and how training is watched and interrupted."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator

import faiss
import numpy as np
import pytest

from pipeline.search import faiss_index

DIMENSION = 16
FACTORIES = {
    "HNSW8": 1, "LSH": 1, "HNSW8_SQ8": 1, "IVF40,Flat": 40, "IVF64_HNSW8,SQ8": 64, "PCA8,IVF40,Flat": 40,
    "PQ4x4": 16, "IVF8,PQ4x6": 64, "IVF300,PQ4x4": 300, "HNSW8_PQ4x4": 16, "IMI2x4,Flat": 16, "PRQ2x2x4": 16,
    "OPQ4,IVF8,PQ4x4": 256, "IVF40,Flat,RFlat": 40, "IVF8,PQ4x4,Refine(PQ4x5)": 32, "IVF40(PQ4x4),Flat": 40,
    "IVF40,PQ4x4fs": 40,
}  # fmt: skip


@pytest.mark.parametrize(("factory", "expected"), FACTORIES.items())
def test_faiss_trains_on_as_many_and_not_on_fewer(factory: str, expected: int) -> None:
    needed = faiss_index.least_training_rows(faiss.index_factory(DIMENSION, factory))
    assert needed == expected
    vectors = np.random.default_rng(0).standard_normal((needed, DIMENSION)).astype(np.float32)
    faiss.index_factory(DIMENSION, factory).train(vectors)
    if needed > 1:
        with pytest.raises(RuntimeError):
            faiss.index_factory(DIMENSION, factory).train(vectors[1:])


class Untrained:
    """Stands for an index in a kind of training that never looks for an interruption."""

    def __init__(self, ended: threading.Event) -> None:
        self.ended = ended

    def train(self, vectors: np.ndarray) -> None:
        self.ended.wait()


class Interrupting:
    """A bar that interrupts the process, as Ctrl-C does, when it is first refreshed."""

    def update(self, n: int = 1) -> None:
        assert n == 0
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def at_exit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[object, ...]]]:
    """What is called at the end of the process; meanwhile bars are refreshed often, and Ctrl-C is heeded."""
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(atexit, "register", lambda *call: calls.append(call))
    monkeypatch.setattr(faiss_index, "TICK", 0.01)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield calls
    signal.signal(signal.SIGINT, before)


def test_an_interruption_does_not_wait_for_the_training(
    at_exit: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss_index, "STOPPING", 0.01)
    ended = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        faiss_index.train(Untrained(ended), np.zeros((1, 1), np.float32), Interrupting())
    ended.set()
    assert at_exit == [(os._exit, 130)]


class Trained(Untrained):
    """An index whose training ends when it is interrupted."""

    def train(self, vectors: np.ndarray) -> None:
        super().train(vectors)
        raise RuntimeError("computation interrupted")


def test_a_training_that_stops_in_time_leaves_nothing_behind(at_exit: list[tuple[object, ...]]) -> None:
    ended = threading.Event()

    class Stopping(Interrupting):
        def update(self, n: int = 1) -> None:
            ended.set()
            super().update(n)

    with pytest.raises(KeyboardInterrupt):
        faiss_index.train(Trained(ended), np.zeros((1, 1), np.float32), Stopping())
    assert at_exit == []
    faiss.index_factory(DIMENSION, "IVF8,Flat").train(np.eye(DIMENSION, dtype=np.float32))
