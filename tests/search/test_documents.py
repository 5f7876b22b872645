"""Documents ranked by their chunks against the definition, which scores every chunk."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as npst
from search.by_definition import BAR, METRICS, best_documents, ids, positive, same, vector_scores

from pipeline.core.display import Bar
from pipeline.core.records import Embeddings, Float32, Int64, Ranking
from pipeline.search import candidates, documents, exact, scan
from pipeline.search.documents import Documents, rank
from pipeline.search.exact import ExactSearcher
from pipeline.search.scoring import Metric


def cut(lengths: list[int] | Int64, mean: bool) -> Documents:
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Documents(bounds, mean)


def plain(scores: Float32, of: Documents, k: int) -> Ranking:
    return best_documents(scores, of.bounds, k, "mean" if of.mean else "max")


def search(rows: Float32, queries: Float32, k: int, metric: Metric, of: Documents, **how: int) -> Ranking:
    parts = Embeddings(tuple(part for part in np.array_split(rows, 3) if len(part)))
    searcher = ExactSearcher(parts, ids(of.chunks), metric, **how)

    def find(chosen: Int64, depth: int, bar: Bar) -> Ranking:
        return searcher.search(queries[chosen], depth, bar)

    def score(query: int, chunks: Int64) -> Float32:
        return searcher.score(queries[query : query + 1], chunks)

    return rank(find, len(queries), of, k, ids(len(of)), BAR, score)


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
    assert same(search(rows, queries, k, metric, of), plain(vector_scores(rows, queries, metric), of, k))


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_equals_scores_of_every_chunk_however_the_work_is_cut(
    metric: Metric, mean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents reach over several blocks, and queries are searched in groups; many tie."""
    monkeypatch.setattr(scan, "QUERIES", 20)
    monkeypatch.setattr(scan, "MOST_ROWS", 300)
    monkeypatch.setattr(candidates, "SPARE", 16)
    monkeypatch.setattr(exact, "SMALL", 0)
    monkeypatch.setattr(documents, "HITS", 5000)
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 9, 400)
    lengths[50] = 1200  # longer than three blocks
    of = cut(lengths, mean)
    rows = generator.standard_normal((of.chunks, 24), np.float32)
    rows *= generator.uniform(0.1, 10, (of.chunks, 1)).astype(np.float32)
    one = of.bounds[100]
    rows[one : of.bounds[180]] = rows[one]  # eighty documents of equal chunks
    queries = np.concatenate([generator.standard_normal((48, 24), np.float32), rows[one : one + 1]])
    expected = plain(vector_scores(rows, queries, metric), of, 60)
    assert same(search(rows, queries, 60, metric, of), expected)
    assert same(search(rows, queries, 60, metric, of, memory_mb=1), expected)


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
        return positive(Ranking(order, np.take_along_axis(scores[chosen], order, axis=1)))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(documents, "HITS", most)
        found = rank(find, 3, of, k, ids(len(of)), BAR)
    expected = plain(scores, of, k)
    assert same(found, positive(expected))
    query, place = np.nonzero(found.passages >= 0)
    chunks = found.chunks[query, place]  # type: ignore[index]
    assert np.array_equal(scores[query, chunks], scores[query, expected.chunks[query, place]])  # type: ignore[index]
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

    found = rank(find, 2, of, 10, ids(len(of)), BAR)
    assert same(found, plain(scores, of, 10))
    assert asked == [([0, 1], 15), ([0], 30), ([0], 60), ([0], 120)]
