"""Benchmarks of retrievers made of others, with a reranker that needs no model."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from pipeline import load_config, run_benchmark
from pipeline.config import RERANKERS, RerankSettings
from pipeline.run import Benchmark, Session


class SharedWordsSettings(RerankSettings):
    """A reranker that counts the words that a query and a passage share."""

    backend: Literal["shared-words"] = RerankSettings.narrowed("backend", "shared-words")


def load_shared_words(settings: Any, model: Any, prepared: Any) -> "SharedWords":
    return SharedWords()


class SharedWords:
    """See `pipeline.encoders.opener.Scorer`."""

    scored: ClassVar[list[tuple[str, str]]] = []

    def score(self, pairs: Sequence[tuple[str, str]], usage: Any, bar: Any) -> np.ndarray:
        self.scored.extend(pairs)
        bar.update(len(pairs))
        found = [len({*a.lower().split()} & {*b.lower().split()}) / len(b.split()) for a, b in pairs]
        return np.array(found, np.float32)


@contextlib.contextmanager
def registered() -> Iterator[None]:
    """A context in which configs may name the reranker."""
    before = RERANKERS.classes
    RERANKERS.classes = dict(RERANKERS.classes)
    RERANKERS.register(SharedWordsSettings, load_shared_words)
    try:
        yield
    finally:
        RERANKERS.classes = before


BASE = """
name: t
data: {source: sample}
model: {backend: bm25}
search: {top_k: 100}
evaluate: {measures: [ndcg@10, recall@100, mrr@10]}
"""
RERANK = "rerank={backend: shared-words, name: %s, depth: 20}"
FUSE = "fuse={of: [{model: {backend: bm25}}, {model: {backend: bm25, stemmer: null, b: 0.9}}]}"
Run = Callable[..., SimpleNamespace]


@pytest.fixture(scope="session")
def reranking() -> SimpleNamespace:
    """The reranker of these tests, how configs may name it, and configs without it."""
    return SimpleNamespace(SharedWords=SharedWords, registered=registered, BASE=BASE, FUSE=FUSE)


@pytest.fixture(scope="session")
def runs_of() -> Callable[[Path, Path], Run]:
    """Given a config and a folder of cache and results, runs it with settings, once for each."""

    def of(path: Path, folder: Path) -> Run:
        made: dict[tuple[str, ...], SimpleNamespace] = {}

        def run(*settings: str) -> SimpleNamespace:
            if settings not in made:
                places = [f"cache={folder}/indexes", f"output={folder}/results", f"name=r{len(made)}"]
                with registered():
                    config = load_config(path, [*places, *settings])
                SharedWords.scored.clear()
                result = run_benchmark(config)
                benchmark, scored = Benchmark(config, Session()), list(SharedWords.scored)
                parts = {"config": config, "benchmark": benchmark, "recipes": benchmark.recipes}
                made[settings] = SimpleNamespace(result=result, record=result.record, scored=scored, **parts)
            return made[settings]

        return run

    return of


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory, runs_of: Callable[[Path, Path], Run]) -> Run:
    """Runs the BM25 benchmark with settings."""
    folder = tmp_path_factory.mktemp("composed")
    (folder / "c.yaml").write_text(BASE, encoding="utf-8")
    return runs_of(folder / "c.yaml", folder)


@pytest.fixture(scope="session")
def bm25(composed: Run) -> SimpleNamespace:
    """BM25 alone."""
    return composed()


@pytest.fixture(scope="session")
def reranked(composed: Run, bm25: SimpleNamespace, minilm_folder: Path) -> SimpleNamespace:
    """BM25, the best 20 reranked."""
    return composed(RERANK % minilm_folder)


@pytest.fixture(scope="session")
def fused(composed: Run, bm25: SimpleNamespace) -> SimpleNamespace:
    """BM25 and BM25 with other settings, joined by reciprocal ranks."""
    return composed("model=null", FUSE)


@pytest.fixture(scope="session")
def fused_reranked(composed: Run, minilm_folder: Path) -> SimpleNamespace:
    """Fused, then reranked."""
    return composed("model=null", FUSE, RERANK % minilm_folder)
