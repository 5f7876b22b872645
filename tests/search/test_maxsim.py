"""MaxSim against the definition: ties, any cut of vectors and memory."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as npst
from search.by_definition import BAR, best, ids, same

from pipeline.core.records import Array, Embeddings, Float32, Float64, Ranking, TokenEmbeddings
from pipeline.search import candidates, maxsim


def scores_of(passages: Sequence[Array], queries: Sequence[Array], mean: bool = False) -> Float64:
    """float64 [queries, passages], by the definition."""
    wide = [passage.astype(np.float64) for passage in passages]
    found = [[(query.astype(np.float64) @ passage.T).max(axis=1) for passage in wide] for query in queries]
    return np.array([[each.mean() if mean else each.sum() for each in row] for row in found])


def joined(texts: Sequence[Array], shards: int = 1) -> TokenEmbeddings:
    """Token vectors of texts, in shards."""
    ends = np.cumsum([len(text) for text in texts])
    cuts = np.linspace(0, len(texts), shards + 1).astype(int).tolist()
    parts = [np.concatenate(texts[a:b]) for a, b in itertools.pairwise(cuts) if b > a]
    return TokenEmbeddings(Embeddings(tuple(parts)), ends)


def search(
    passages: Sequence[Array], queries: Sequence[Array], k: int, shards: int = 1, **how: int | None
) -> Ranking:
    stored, names = joined(passages, shards), ids(len(passages))
    return maxsim.maxsim_search(stored, joined(queries), k, names, BAR, **how)


def texts_of(n: int, dimension: int, seed: int = 0, longest: int = 40) -> list[Float32]:
    """Token vectors of length 1 that point in similar directions, as those of real models do."""
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        text = generator.standard_normal((generator.integers(1, longest), dimension)) + 0.3
        made.append((text / np.linalg.norm(text, axis=1, keepdims=True)).astype(np.float32))
    return made


# small integers: equal scores are many, and zero vectors among them
SMALL = st.lists(
    npst.arrays(
        np.float32, st.tuples(st.integers(1, 9), st.just(3)), elements=st.integers(-2, 2).map(np.float32)
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=30)
@given(SMALL, SMALL, st.integers(1, 25), st.integers(1, 4), st.sampled_from([np.float32, np.float16]))
def test_hits_are_the_best_with_ties_zero_vectors_and_any_k(
    passages: list[Float32], queries: list[Float32], k: int, shards: int, stored: type
) -> None:
    kept = [passage.astype(stored) for passage in passages]
    assert same(search(kept, queries, k, shards), best(scores_of(passages, queries), k))


@pytest.mark.parametrize(
    ("dimension", "scale", "mean"), [(64, 1.0, False), (33, 1e-12, True), (96, 1e6, False)]
)
def test_hits_are_the_best_however_the_work_is_cut(
    dimension: int, scale: float, mean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    factor = np.float32(scale)
    passages = [factor * text for text in texts_of(500, dimension)]
    queries = [factor * text for text in texts_of(20, dimension, seed=1)]
    passages[50] = passages[51] = passages[450]  # ties
    expected = best(scores_of(passages, queries, mean), 40)
    assert same(search(passages, queries, 40, 3, mean=mean), expected)
    monkeypatch.setattr(candidates, "SPARE", 16)  # thresholds rise often
    monkeypatch.setattr(maxsim, "SCORED_NUMBERS", 3000)
    monkeypatch.setattr(maxsim, "QUERY_TOKENS", 50)
    monkeypatch.setattr(maxsim, "BLOCK_TOKENS", 2000)
    assert same(search(passages, queries, 40, 7, mean=mean, memory_mb=64), expected)


def test_groups_of_queries_within_memory_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    passages, queries = texts_of(3000, 8, longest=5), texts_of(600, 8, seed=1, longest=5)
    groups, whole = [], search(passages, queries, 1000)
    scan = maxsim.MaxSimScan
    monkeypatch.setattr(maxsim, "MaxSimScan", lambda *given: groups.append(0) or scan(*given))
    assert same(search(passages, queries, 1000, memory_mb=64), whole)
    assert len(groups) > 1


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 200), st.sampled_from([1e-20, 1e-3, 1.0, 1e8]))
def test_inexact_scores_are_within_the_bound(seed: int, dimension: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    lengths = generator.choice([1e-3, 1.0, 30.0], 60)[:, None]
    texts = [scale * lengths * generator.standard_normal((60, dimension)) for _ in range(2)]
    passages, queries = ([each.astype(np.float32) for each in np.split(text, 12)] for text in texts)
    asked = joined(queries)
    scan = maxsim.MaxSimScan(joined(passages), np.concatenate(queries), asked.bounds, 5, ids(12), False)
    found = np.empty((12, 12), np.float32)
    scan.longest = scan._score_chunk(0, 12, found)
    errors = np.abs(found.T - scores_of(passages, queries)).max(axis=1)
    bound = scan._error(slice(0, 12))
    assert (errors <= bound).all()
    sizes = [np.linalg.norm(query, axis=1).sum() * scan.longest for query in queries]
    assert (bound < 0.01 * np.maximum(sizes, 1e-15)).all()
