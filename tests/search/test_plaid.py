"""An index of token vectors by fast-plaid against brute force, where the package is installed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config import PlaidSettings, SearchConfig
from pipeline.core.errors import InputError
from pipeline.core.progress import silent
from pipeline.core.records import Embeddings, Float32, Float64, Ranking, TokenEmbeddings
from pipeline.search import plaid, timing
from pipeline.search.documents import Documents

DIMENSION = 16


def texts_of(n: int, seed: int, most: int = 12) -> list[Float32]:
    """Token vectors of length 1."""
    generator = np.random.default_rng(seed)
    made = [generator.standard_normal((generator.integers(1, most), DIMENSION)) for _ in range(n)]
    return [(text / np.linalg.norm(text, axis=1, keepdims=True)).astype(np.float32) for text in made]


PASSAGES, QUERIES = texts_of(300, 0), texts_of(7, 1)


def joined(texts: Sequence[Float32], *cuts: int) -> TokenEmbeddings:
    """Token vectors of texts, in shards that end before the texts of the given numbers."""
    spans = itertools.pairwise([0, *cuts, len(texts)])
    parts = tuple(np.concatenate(texts[start:stop]) for start, stop in spans)
    return TokenEmbeddings(Embeddings(parts), np.cumsum([len(text) for text in texts]))


def scores_of(passages: Sequence[Float32], queries: Sequence[Float32]) -> Float64:
    return np.array([[(query @ passage.T).max(axis=1).sum() for passage in passages] for query in queries])


def search(
    folder: Path,
    queries: Sequence[Float32],
    passages: TokenEmbeddings | None = None,
    documents: Documents | None = None,
    n: int = len(PASSAGES),
    mean: bool = False,
    **settings: Any,
) -> Ranking:
    config = SearchConfig(**{"top_k": 10, "batch_size": 3, **settings})
    ids = pa.chunked_array([[f"d{row:04}" for row in range(n)]])
    files = [path.name for path in folder.iterdir()]
    opened = plaid.open_searcher(folder, files, config, joined(queries), mean, passages)
    with opened as searcher, silent("", None, "") as bar:
        return searcher.search(ids, bar, documents)


@pytest.fixture(scope="module")
def index(fast_plaid: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the passages, whose vectors are in two shards."""
    folder = tmp_path_factory.mktemp("plaid")
    made = plaid.build_index(joined(PASSAGES, 113), PlaidSettings(), folder)
    assert made > 100
    assert plaid.LOCK not in [path.name for path in folder.iterdir()]
    return folder


def test_scores_are_near_the_exact_ones_and_fall(index: Path) -> None:
    before = {path.name: path.read_bytes() for path in index.iterdir()}
    found = search(index, QUERIES)
    exact = scores_of(PASSAGES, QUERIES)
    assert found.passages.shape == (len(QUERIES), 10)
    assert (np.diff(found.scores) <= 0).all()
    np.testing.assert_allclose(found.scores, np.take_along_axis(exact, found.passages, axis=1), atol=0.3)
    best = np.argsort(-exact)[:, :10]
    shared = [len({*a} & {*b}) for a, b in zip(found.passages, best, strict=True)]
    assert np.mean(shared) > 8
    assert {path.name: path.read_bytes() for path in index.iterdir()} == before  # opening writes nothing


def test_rescored_hits_have_the_scores_of_the_stored_vectors(index: Path) -> None:
    exact = scores_of(PASSAGES, QUERIES)
    all_probed = {"n_ivf_probe": 64}
    found = search(index, QUERIES, joined(PASSAGES), rescore=9, parameters=all_probed)
    np.testing.assert_allclose(found.scores, np.take_along_axis(exact, found.passages, axis=1), rtol=1e-6)
    np.testing.assert_array_equal(found.passages, np.argsort(-exact)[:, :10])
    means = search(index, QUERIES, mean=True)
    tokens = np.array([len(query) for query in QUERIES], np.float32)
    sums = search(index, QUERIES)
    np.testing.assert_allclose(means.scores * tokens[:, None], sums.scores, rtol=1e-6)


def test_documents_are_ranked_by_their_best_chunk(index: Path) -> None:
    bounds = np.arange(0, 301, 3)
    chunk_ids = pa.chunked_array([[f"d{row // 3:04}#{row % 3}" for row in range(300)]])
    documents = Documents(bounds, chunk_ids)
    found = search(
        index, QUERIES, joined(PASSAGES), documents, n=100, rescore=9, parameters={"n_ivf_probe": 64}
    )
    exact = scores_of(PASSAGES, QUERIES)
    best = exact.reshape(len(QUERIES), 100, 3).max(axis=2)
    np.testing.assert_array_equal(found.passages, np.argsort(-best)[:, :10])
    assert found.chunks is not None
    np.testing.assert_array_equal(found.chunks // 3, found.passages)


def test_a_few_passages_have_fewer_centroids_than_are_looked_at(fast_plaid: str, tmp_path: Path) -> None:
    few = [np.eye(DIMENSION, dtype=np.float32)[:5], np.eye(DIMENSION, dtype=np.float32)[5:11]]
    folder = tmp_path / "i"
    folder.mkdir()
    plaid.build_index(joined(few), PlaidSettings(), folder)
    found = search(folder, few, joined(few), n=2, rescore=1, parameters={"n_ivf_probe": 1000})
    np.testing.assert_array_equal(found.passages, [[0, 1], [1, 0]])
    np.testing.assert_allclose(found.scores, [[5, 0], [6, 0]])


def test_its_speed_is_measured_on_all_threads_and_on_one(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "SECONDS", 0.01)
    files = [path.name for path in index.iterdir()]
    config = SearchConfig(top_k=5)
    with plaid.open_searcher(index, files, config, joined(QUERIES), False, None) as searcher:
        measured = searcher.measure()
    assert measured["queries_per_second"] > 0 < measured["queries_per_second_one_thread"]
    assert measured["latency_ms"]["median"] > 0


def test_an_index_that_is_not_whole_is_one_message(index: Path, tmp_path: Path) -> None:
    for path in index.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "centroids.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match=f"{tmp_path} is not a complete index"):
        search(tmp_path, QUERIES)


@pytest.mark.parametrize(
    ("passages", "said"),
    [
        ([np.eye(8, dtype=np.float32), np.full((3, 8), 0.1, np.float32)], "has length 0.2828"),
        ([np.eye(8, dtype=np.float32)], "10 token vectors or more, and the passages have 8"),
        ([np.eye(12, dtype=np.float32)], "have 12 dimensions"),
    ],
)
def test_vectors_that_fast_plaid_would_change_are_refused(
    tmp_path: Path, passages: list[Float32], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        plaid.build_index(joined(passages), PlaidSettings(), tmp_path)
