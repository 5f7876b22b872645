"""MaxSim against NumPy brute force and other programs' scores: ties, any cut of vectors and memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pipeline.core.display import silent
from pipeline.core.records import Array, Embeddings, Float32, Float64, Ranking, TokenEmbeddings
from pipeline.search import candidates, maxsim


def ids(n: int) -> pa.ChunkedArray:
    """Ids whose order as strings is not that of their rows."""
    return pa.chunked_array([[str((row * 7919) % 100_003) for row in range(n)]])


def scores_of(passages: Sequence[Array], queries: Sequence[Array], mean: bool = False) -> Float64:
    """float64 [queries, passages], by the definition."""
    wide = [passage.astype(np.float64) for passage in passages]
    best = [[(query.astype(np.float64) @ passage.T).max(axis=1) for passage in wide] for query in queries]
    return np.array([[each.mean() if mean else each.sum() for each in row] for row in best])


def brute_force(passages: Sequence[Array], queries: Sequence[Array], k: int, mean: bool = False) -> Ranking:
    """The definition's scores, rounded; then by score, and by id as a string, both descending."""
    scores = scores_of(passages, queries, mean).astype(np.float32)
    by_id = np.argsort(np.array(ids(len(passages)).to_pylist()))[::-1]
    order = by_id[np.argsort(-scores[:, by_id], axis=1, kind="stable")][:, :k]
    return Ranking(order, np.take_along_axis(scores, order, axis=1))


def joined(texts: Sequence[Array], shards: int = 1) -> TokenEmbeddings:
    """Token vectors of texts, in shards."""
    ends = np.cumsum([len(text) for text in texts])
    parts = [np.concatenate(texts[a:b]) for a, b in itertools.pairwise(cuts(len(texts), shards)) if b > a]
    return TokenEmbeddings(Embeddings(tuple(parts)), ends)


def cuts(n: int, parts: int) -> list[int]:
    return np.linspace(0, n, parts + 1).astype(int).tolist()


def best(
    passages: Sequence[Array], queries: Sequence[Array], k: int, shards: int = 1, *, mean: bool = False,
    memory_mb: int | None = None,
) -> Ranking:  # fmt: skip
    with silent("", None, "") as bar:
        return maxsim.maxsim_search(
            joined(passages, shards), joined(queries), k, ids(len(passages)), bar,
            mean=mean, memory_mb=memory_mb,
        )  # fmt: skip


def same(left: Ranking, right: Ranking) -> bool:
    return bool(np.array_equal(left.passages, right.passages) and np.array_equal(left.scores, right.scores))


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
def test_equals_brute_force_with_ties_zero_vectors_and_any_k(
    passages: list[Float32], queries: list[Float32], k: int, shards: int, stored: type
) -> None:
    kept = [passage.astype(stored) for passage in passages]
    assert same(best(kept, queries, k, shards), brute_force(passages, queries, k))


@pytest.mark.parametrize(
    ("dimension", "scale", "mean"), [(64, 1.0, False), (33, 1e-12, True), (96, 1e6, False)]
)
def test_equals_brute_force_however_the_work_is_cut(
    dimension: int, scale: float, mean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    factor = np.float32(scale)
    passages = [factor * text for text in texts_of(500, dimension)]
    queries = [factor * text for text in texts_of(20, dimension, seed=1)]
    passages[50] = passages[51] = passages[450]  # ties
    expected = brute_force(passages, queries, 40, mean)
    assert same(best(passages, queries, 40, 3, mean=mean), expected)
    monkeypatch.setattr(candidates, "SPARE", 16)  # thresholds rise often
    monkeypatch.setattr(maxsim, "CHUNK", 3000)
    monkeypatch.setattr(maxsim, "QUERY_TOKENS", 50)
    monkeypatch.setattr(maxsim, "BLOCK_TOKENS", 2000)
    assert same(best(passages, queries, 40, 7, mean=mean, memory_mb=64), expected)


def test_a_score_depends_on_its_two_texts_alone() -> None:
    passages, queries = texts_of(90, 48), texts_of(9, 48, seed=1)
    together = best(passages, queries, 90)
    for query, passage in [(0, 0), (4, 33), (8, 89)]:
        alone = best(passages[passage : passage + 1], queries[query : query + 1], 1)
        assert alone.scores[0, 0] == together.scores[query, together.passages[query] == passage]


def test_groups_of_queries_within_memory_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    passages, queries = texts_of(200, 32), texts_of(40, 32, seed=1)
    groups = []
    scan = maxsim.MaxSimScan
    monkeypatch.setattr(maxsim, "MaxSimScan", lambda *given: groups.append(0) or scan(*given))
    monkeypatch.setattr(maxsim, "_block_and_group_sizes", lambda *_: (50, 7))
    assert same(best(passages, queries, 10), brute_force(passages, queries, 10))
    assert len(groups) == 6


def test_less_memory_makes_smaller_blocks_and_groups() -> None:
    passages, queries = joined(texts_of(3000, 32)), joined(texts_of(600, 32, seed=1))
    sizes = [maxsim._block_and_group_sizes(passages, queries, 1000, mb) for mb in (64, 100, 10_000, None)]
    assert sizes == sorted(sizes)
    assert sizes[0][1] < 600
    assert sizes[-1][1] == 600


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


def test_no_query_finds_nothing() -> None:
    empty = TokenEmbeddings(Embeddings((np.empty((0, 8), np.float32),)), np.empty(0, np.int64))
    with silent("", None, "") as bar:
        found = maxsim.maxsim_search(joined(texts_of(5, 8)), empty, 3, ids(5), bar)
    assert found.passages.shape == (0, 3)


def test_stored_passages_are_let_go_when_they_have_been_read(tmp_path: Path) -> None:
    texts = texts_of(200, 16)
    stored = joined(texts)
    np.save(tmp_path / "tokens.npy", np.concatenate(texts).astype(np.float16))
    mapped = Embeddings((np.load(tmp_path / "tokens.npy", mmap_mode="r"),))
    halves = [text.astype(np.float16) for text in texts]
    with silent("", None, "") as bar:
        found = maxsim.maxsim_search(
            TokenEmbeddings(mapped, stored.ends), joined(texts[:7]), 20, ids(200), bar
        )
    assert same(found, brute_force(halves, texts[:7], 20))
