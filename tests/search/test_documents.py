"""Documents ranked by their chunks against a plain version that scores every chunk."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pipeline.core.display import Bar, silent
from pipeline.core.records import Array, Embeddings, Float32, Int64, Ranking, TokenEmbeddings
from pipeline.search import (
    candidates,
    documents,
    exact,
    faiss_index,
    maxsim,
    scan,
    searchers,
)
from pipeline.search.documents import Documents, rank_by_search
from pipeline.search.scoring import Metric, unit_vectors

METRICS: tuple[Metric, ...] = ("inner_product", "cosine", "l2")


def ids(n: int) -> pa.ChunkedArray:
    """Ids whose order as strings is not that of their rows."""
    return pa.chunked_array([[str((row * 7919) % 100_003) for row in range(n)]])


def cut(lengths: list[int] | Int64, mean: bool) -> Documents:
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Documents(bounds, ids(int(bounds[-1])), mean)


def plain(scores: Float32, of: Documents, k: int) -> Ranking:
    """Every chunk's score, float32 [queries, chunks], to the best documents and their best chunks."""
    spans = [slice(start, stop) for start, stop in pairwise(of.bounds.tolist())]
    made = [
        [row[span].astype(np.float64).mean() if of.mean else row[span].max() for span in spans]
        for row in scores
    ]
    values = np.array(made).astype(np.float32)
    by_id = np.argsort(np.array(ids(len(of)).to_pylist()))[::-1]
    order = by_id[np.argsort(-values[:, by_id], axis=1, kind="stable")][:, :k]
    best = np.array([[span.start + int(np.argmax(row[span])) for span in spans] for row in scores])
    return Ranking(order, np.take_along_axis(values, order, axis=1), np.take_along_axis(best, order, axis=1))


def same(left: Ranking, right: Ranking) -> bool:
    pairs = [(left.passages, right.passages), (left.scores, right.scores), (left.chunks, right.chunks)]
    return all(np.array_equal(one, other) for one, other in pairs)


def scores_of(rows: Float32, queries: Float32, metric: Metric) -> Float32:
    if metric == "cosine":
        rows, queries = unit_vectors(rows), unit_vectors(queries)
    wide, asked = rows.astype(np.float64), queries.astype(np.float64)
    if metric == "l2":
        return np.stack([0 - ((wide - query) ** 2).sum(axis=1) for query in asked]).astype(np.float32)
    return (asked @ wide.T).astype(np.float32)


def search(rows: Float32, queries: Float32, k: int, metric: Metric, of: Documents, **how: int) -> Ranking:
    parts = tuple(part for part in np.array_split(rows, 3) if len(part))
    with silent("", None, "") as bar:
        return exact.exact_search(
            Embeddings(parts), queries, k, ids(len(of)), metric, bar, documents=of, **how
        )


LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=12)
SMALL = st.integers(-1, 1).map(np.float32)  # equal scores are many, and zero vectors among them


@settings(max_examples=30)
@given(LENGTHS, st.data(), st.integers(1, 15), st.sampled_from(METRICS), st.booleans())
def test_equals_scores_of_every_chunk_with_ties(
    lengths: list[int], data: st.DataObject, k: int, metric: Metric, mean: bool
) -> None:
    of = cut(lengths, mean)
    rows = data.draw(npst.arrays(np.float32, (of.chunks, 3), elements=SMALL))
    queries = data.draw(npst.arrays(np.float32, (2, 3), elements=SMALL))
    assert same(search(rows, queries, k, metric, of), plain(scores_of(rows, queries, metric), of, k))


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_equals_scores_of_every_chunk_however_the_work_is_cut(
    metric: Metric, mean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents reach over several blocks, and pairs are scored in pieces; many tie."""
    monkeypatch.setattr(scan, "QUERIES", 20)
    monkeypatch.setattr(scan, "BLOCK", 300)
    monkeypatch.setattr(candidates, "SPARE", 16)
    monkeypatch.setattr(documents, "PAIRS", 500)
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 9, 400)
    lengths[50] = 1200  # longer than three blocks
    of = cut(lengths, mean)
    rows = generator.standard_normal((of.chunks, 24), np.float32)
    rows *= generator.uniform(0.1, 10, (of.chunks, 1)).astype(np.float32)
    one = of.bounds[100]
    rows[one : of.bounds[180]] = rows[one]  # eighty documents of equal chunks
    queries = np.concatenate([generator.standard_normal((48, 24), np.float32), rows[one : one + 1]])
    expected = plain(scores_of(rows, queries, metric), of, 60)
    assert same(search(rows, queries, 60, metric, of), expected)
    assert same(search(rows, queries, 60, metric, of, memory_mb=1), expected)


@pytest.mark.parametrize("mean", [False, True])
def test_token_vectors_equal_scores_of_every_chunk(mean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxsim, "BLOCK_TOKENS", 200)
    generator = np.random.default_rng(1)
    of = cut(generator.integers(1, 6, 60), mean)

    def tokens(texts: int) -> tuple[list[Float32], TokenEmbeddings]:
        made = [generator.standard_normal((n, 16), np.float32) for n in generator.integers(1, 9, texts)]
        ends = np.cumsum([len(each) for each in made])
        return made, TokenEmbeddings(Embeddings((np.concatenate(made),)), ends)

    (chunks, stored), (queries, asked) = tokens(of.chunks), tokens(5)
    wide: list[Array] = [chunk.astype(np.float64) for chunk in chunks]
    scores = [[(query.astype(np.float64) @ chunk.T).max(axis=1).sum() for chunk in wide] for query in queries]
    with silent("", None, "") as bar:
        found = maxsim.maxsim_search(stored, asked, 20, ids(len(of)), bar, documents=of)
    assert same(found, plain(np.array(scores).astype(np.float32), of, 20))


@settings(max_examples=40)
@given(LENGTHS, st.data(), st.integers(1, 15), st.booleans(), st.integers(1, 60))
def test_a_search_is_asked_until_the_documents_are_certain(
    lengths: list[int], data: st.DataObject, k: int, mean: bool, most: int
) -> None:
    """Scores above 0 are found, as by a search of words; any order of equal ones will do."""
    of = cut(lengths, mean)
    scores = data.draw(npst.arrays(np.float32, (3, of.chunks), elements=st.integers(0, 5).map(np.float32)))
    shuffled = np.random.default_rng(most).permutation(of.chunks)
    asked: list[int] = []

    def find(chosen: Int64, depth: int, bar: Bar) -> Ranking:
        asked.append(depth)
        order = shuffled[np.argsort(-scores[chosen][:, shuffled], axis=1, kind="stable")][:, :depth]
        values = np.take_along_axis(scores[chosen], order, axis=1)
        return Ranking(np.where(values > 0, order, -1), np.where(values > 0, values, -np.inf))

    with silent("", None, "") as bar, pytest.MonkeyPatch.context() as patched:
        patched.setattr(documents, "HITS", most)
        found = rank_by_search(find, 3, of, k, ids(len(of)), bar)
    expected = plain(scores, of, k)
    assert np.array_equal(found.passages, np.where(expected.scores > 0, expected.passages, -1))
    assert np.array_equal(found.scores, np.where(expected.scores > 0, expected.scores, -np.inf))
    query, place = np.nonzero(found.passages >= 0)
    best = found.chunks[query, place]  # type: ignore[index]
    assert np.array_equal(scores[query, best], scores[query, expected.chunks[query, place]])  # type: ignore[index]
    assert max(asked) <= of.chunks


def test_no_more_chunks_are_asked_for_than_it_takes() -> None:
    """A document of a hundred good chunks makes the search go deeper for its query alone."""
    of = cut([100] + [1] * 300, mean=False)
    scores = np.tile(np.linspace(1, 0.5, of.chunks, dtype=np.float32), (2, 1))
    scores[1] = scores[1][::-1]
    asked: list[tuple[list[int], int]] = []

    def find(chosen: Int64, depth: int, bar: Bar) -> Ranking:
        asked.append((chosen.tolist(), depth))
        order = np.argsort(-scores[chosen], axis=1)[:, :depth]
        return Ranking(order, np.take_along_axis(scores[chosen], order, axis=1))

    with silent("", None, "") as bar:
        found = rank_by_search(find, 2, of, 10, ids(len(of)), bar)
    assert same(found, plain(scores, of, 10))
    assert asked == [([0, 1], 15), ([0], 30), ([0], 60), ([0], 120)]


def test_an_approximate_index_that_finds_all_gives_the_exact_documents() -> None:
    from pipeline.config import IndexConfig, SearchConfig

    generator = np.random.default_rng(2)
    of = cut(generator.integers(1, 6, 80), mean=False)
    rows, queries = (generator.standard_normal((n, 16), np.float32) for n in (of.chunks, 7))
    config, how = IndexConfig(factory="IVF4,Flat"), SearchConfig(top_k=12, parameters={"nprobe": 4})
    with silent("", None, "") as bar:
        built = faiss_index.build_index(Embeddings((rows,)), config.factory, config.metric, bar)
        stored = faiss_index.index_to_bytes(built)
        found = searchers.open_searcher(config, how, stored).search(queries, ids(len(of)), bar, of)
    expected = plain(scores_of(rows, queries, "inner_product"), of, 12)
    assert np.array_equal(found.passages, expected.passages)
    assert np.array_equal(found.chunks, expected.chunks)  # type: ignore[arg-type]
