"""Groups of a collection's queries: by topic, length, number of relevant passages, and overlap of words."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.arrow import from_numpy
from pipeline.core.display import counted
from pipeline.core.records import Array, Collection, Float32, Float64, Int64
from pipeline.core.words import words_of
from pipeline.metrics.distinctive import distinctive_words

SEED = 0
MOST_TOPICS = 12
QUERIES_OF_A_TOPIC = 10
"""There are at most as many topics as leave so many queries to each, on average."""
SILHOUETTE_SAMPLE = 2_000
"""Most queries that a silhouette is computed from."""
PARTS = 3
"""Groups by a number, of about as many queries each."""
WORD_DIMENSIONS = 50


@dataclass(frozen=True)
class Grouping:
    """One way to put every query into a group.

    Attributes:
        by: `topic`, `text`, `length`, `relevant` or `overlap`.
        names: Of the groups.
        groups: int64 [queries], the group of each.
        note: How the groups were made, as a sentence without its full stop; "" where the names say it.
    """

    by: str
    names: list[str]
    groups: Int64
    note: str = ""


def groupings_of(
    collection: Collection,
    query_ids: Sequence[str],
    vectors: Float32 | None,
    rel: int,
    others: Sequence[Sequence[str]] = (),
) -> list[Grouping]:
    """All groupings of some queries that have more than one group.

    Args:
        collection: It has all the queries.
        query_ids: The queries to group.
        vectors: float32 [queries of the collection, d]; None takes the words of the queries instead.
        rel: The lowest grade that counts as relevant.
        others: Texts of the same queries in other collections, where these differ.
    """
    import pyarrow as pa

    from pipeline.metrics.evaluation import row_numbers

    rows = row_numbers(pa.array(query_ids, pa.string()), collection.queries.ids)
    texts = collection.queries.texts.take(from_numpy(rows)).to_pylist()
    word_lists = [words_of(text) for text in texts]
    relevant = _relevant_rows(collection, rows, rel)
    lengths = np.array([len(words) for words in word_lists])
    counts = np.array([len(passages) for passages in relevant])
    found = [
        _by_topic(texts, None if vectors is None else vectors[rows]),
        *(_by_text(texts, other) for other in others),
        by_number("length", lengths, lambda low, high: f"{_span(low, high)} {_noun(high, 'word')}"),
        by_number(
            "relevant", counts, lambda low, high: f"{_span(low, high)} {_noun(high, 'relevant passage')}"
        ),
        _by_overlap(collection, word_lists, relevant),
    ]
    return [each for each in found if each is not None and len(each.names) > 1]


def by_number(by: str, values: Array, name: Callable[[float, float], str]) -> Grouping:
    """Groups of about as many queries each, by a number; equal numbers are in the same group.

    Args:
        by: What the number is.
        values: [queries].
        name: Names a group, from its lowest and its highest number.
    """
    edges = np.quantile(values, np.arange(1, PARTS) / PARTS, method="inverted_cdf")
    _, groups = np.unique(np.searchsorted(np.unique(edges), values), return_inverse=True)
    names = [
        name(values[groups == group].min(), values[groups == group].max())
        for group in range(groups.max() + 1)
    ]
    return Grouping(by, names, groups.astype(np.int64))


def _by_topic(texts: Sequence[str], vectors: Float32 | None) -> Grouping | None:
    """K-means over the vectors; the number of groups is that of the highest mean silhouette."""
    space = "the vectors of the queries" if vectors is not None else "tf-idf of the words of the queries"
    points = _word_vectors(texts) if vectors is None else vectors / _lengths(vectors)
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    most = min(MOST_TOPICS, len(points) // QUERIES_OF_A_TOPIC, len(np.unique(points, axis=0)) - 1)
    if most < 2:
        return None
    groups, silhouette = cluster(points, most)
    names = []
    for group in range(groups.max() + 1):
        words = ", ".join(distinctive_words(texts, groups == group, ENGLISH_STOP_WORDS))
        names.append(f"about {words}" if words else f"topic {group + 1}")
    note = f"topics are {len(names)} clusters of {space} (silhouette {silhouette:.3f})"
    return Grouping("topic", _unique(names), groups, note)


def cluster(points: Float32 | Float64, most: int) -> tuple[Int64, float]:
    """K-means, with 2 to `most` clusters, by scikit-learn; those with the highest mean silhouette are taken.

    Lloyd's algorithm from the best of 4 beginnings by k-means++ (Arthur and Vassilvitskii, SODA 2007). The
    silhouette of a point is (b - a) / max(a, b), a its mean distance from the others of its cluster and b
    that from those of the nearest other cluster (Rousseeuw, J. Computational and Applied Math. 20, 1987).

    Args:
        points: [n, d], of at least `most` + 1 different ones.
        most: 2 or more.

    Returns:
        int64 [n], the cluster of each point, the largest cluster first; and the mean silhouette.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    best: tuple[float, Int64] = (-np.inf, np.zeros(len(points), np.int64))
    sample = min(SILHOUETTE_SAMPLE, len(points))
    for number in range(2, most + 1):
        labels = KMeans(number, n_init=4, random_state=SEED).fit_predict(points)
        score = float(silhouette_score(points, labels, sample_size=sample, random_state=SEED))
        if score > best[0]:
            best = score, labels
    silhouette, labels = best
    place = np.argsort(np.argsort(-np.bincount(labels), kind="stable"), kind="stable")
    return place[labels].astype(np.int64), silhouette


def _word_vectors(texts: Sequence[str]) -> Float64:
    """float64 [texts, d] of length 1: tf-idf of words, reduced by singular value decomposition."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    if len({word for text in texts for word in words_of(text)}) < 3:
        return np.zeros((len(texts), 1))
    weights = TfidfVectorizer(analyzer=words_of).fit_transform(texts)
    dimensions = min(WORD_DIMENSIONS, *(size - 1 for size in weights.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a variance of 0, where all texts are equal
        points: Float64 = TruncatedSVD(dimensions, random_state=SEED).fit_transform(weights)
    return points / _lengths(points)


def _by_text(texts: Sequence[str], others: Sequence[str]) -> Grouping:
    """Queries that have other texts in another result."""
    changed = np.array([ours != theirs for ours, theirs in zip(texts, others, strict=True)])
    kinds, groups = np.unique(changed, return_inverse=True)
    names = ["text differs between results" if kind else "same text in all results" for kind in kinds]
    return Grouping("text", names, groups.astype(np.int64))


def _by_overlap(
    collection: Collection, word_lists: Sequence[Sequence[str]], relevant: Sequence[Int64]
) -> Grouping:
    """The share of a query's distinct words that stand in a relevant passage, mean over those passages."""
    wanted = np.unique(np.concatenate([*relevant, np.zeros(0, np.int64)]))
    wanted = wanted[wanted < len(collection.passages)]
    texts = collection.passages.texts.take(from_numpy(wanted)).to_pylist()
    words = {row: set(words_of(text)) for row, text in zip(wanted.tolist(), texts, strict=True)}
    shares = []
    for query, passages in zip(word_lists, relevant, strict=True):
        asked = set(query)
        standing = [len(asked & words[row]) for row in passages.tolist() if row in words]
        shares.append(np.mean(standing) / len(asked) if asked and standing else 0.0)
    percent = np.round(100 * np.array(shares))
    return by_number(
        "overlap", percent, lambda low, high: f"{_span(low, high)}% of its words in the relevant passages"
    )


def _relevant_rows(collection: Collection, rows: Int64, rel: int) -> list[Int64]:
    """The passages that are relevant to each query."""
    qrels = collection.qrels
    is_relevant = qrels.grades >= rel
    queries, passages = qrels.queries[is_relevant], qrels.passages[is_relevant]
    first, last = np.searchsorted(queries, rows), np.searchsorted(queries, rows, side="right")
    return [passages[start:stop] for start, stop in zip(first, last, strict=True)]


def _lengths(vectors: Float32 | Float64) -> Float64:
    lengths: Float64 = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(lengths > 0, lengths, 1)


def _unique(names: Sequence[str]) -> list[str]:
    """The names, of which equal ones get a number."""
    return [
        f"{name} ({names[: number + 1].count(name)})" if list(names).count(name) > 1 else name
        for number, name in enumerate(names)
    ]


def _span(low: float, high: float) -> str:
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def _noun(count: float, noun: str) -> str:
    return counted(int(count), noun).partition(" ")[2]
