"""Scoring of a ranking: the grades of its hits are looked up once, then every measure is computed from them.

values = compute_measures(ranking, qrels, parse_measures("ndcg@10,map"))  # float64 [queries, 2]

The lookup is the expensive part: of a million hits, few are judged. A query's row and a passage's row are
joined into one integer key, `query * stride + passage`. Judgments are sorted, so their keys ascend, and a
hash table finds the hits whose key is among them (`_match_keys`), a block of queries at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.records import Array, BoolArray, Collection, Float64, Int64, Qrels, Ranking
from pipeline.metrics.definitions import MEASURES, Measure
from pipeline.metrics.measures import GradedCells, JudgedRanking, ideal_order
from pipeline.metrics.presentation import ShortRankings

BLOCK_CELLS = 1 << 16  # cells of a ranking that are looked up at once
RANDOM_DEPTH = 10  # hits of a query that are compared with those of a random order
RANDOM_QUERIES = 25  # that have relevant passages and hits, at least


def compute_measures(ranking: Ranking, qrels: Qrels, measures: Sequence[Measure]) -> Float64:
    """The value of every measure for every query.

    Args:
        ranking: A row for each query, ordered by the tie rule, without duplicate passages. A query without
            hits, or without relevant passages, scores 0, as in `trec_eval -c`.
        qrels: The judgments of the same queries.
        measures: In any order; those that differ only in cutoff are computed together.

    Returns:
        float64 [queries, measures], columns in the order of `measures`.
    """
    n_queries, width = ranking.passages.shape
    depth = max(width, 1)  # the cutoff of measures without one
    cells, entries = judged_cells(ranking.passages, qrels)
    queries, ranks = np.divmod(cells, depth)
    judged = JudgedRanking(
        found=GradedCells(n_queries, queries, qrels.grades[entries], ranks + 1),
        ideal=ideal_order(n_queries, qrels.queries, qrels.grades),
        retrieved=ranking.lengths(),
    )
    columns_of: defaultdict[Measure, list[int]] = defaultdict(list)
    for column, measure in enumerate(measures):
        columns_of[replace(measure, cutoff=None)].append(column)
    values = np.empty((n_queries, len(measures)))
    for measure, columns in columns_of.items():
        cutoffs, places = np.unique([measures[each].cutoff or depth for each in columns], return_inverse=True)
        scored = judged.condensed() if measure.condensed else judged
        values[:, columns] = measure.definition.compute(scored, cutoffs, **measure.settings)[:, places]
    return values


def compute_with_shares(
    ranking: Ranking, qrels: Qrels, measures: Sequence[Measure]
) -> tuple[Float64, dict[str, Float64]]:
    """The values of `compute_measures`, and of each measure with a cutoff how much of the top k is judged.

    These shares, float64 [queries], are by the measure's name; a condensed list, all judged, has none.
    """
    cut = [each for each in measures if each.cutoff and not each.condensed]
    at_cutoffs = [Measure("judged", MEASURES["judged"], cutoff=each.cutoff) for each in cut]
    values = compute_measures(ranking, qrels, [*measures, *at_cutoffs])
    shares = dict(zip(map(str, cut), values.T[len(measures) :], strict=True))
    return values[:, : len(measures)], shares


def row_numbers(
    ids: pa.Array | pa.ChunkedArray, among: pa.Array | pa.ChunkedArray, absent: int = -1
) -> Int64:
    """int64 [ids]: the position of each id in `among`, both Arrow strings; `absent` if it is not in there."""
    ids = ids if ids.type == among.type else ids.cast(among.type)  # large strings hold more than 2 GiB
    positions = pc.fill_null(pc.index_in(ids, value_set=among), absent)
    rows: Int64 = positions.to_numpy().astype(np.int64)
    return rows


def own_passages(rows: Int64) -> Qrels:
    """Of each query the passage with its id; `rows` is int64 [queries], the row of that passage, or -1."""
    queries = np.flatnonzero(rows >= 0)
    return Qrels(queries, rows[queries], np.zeros(len(queries)))


def ignored_hits(collection: Collection, ignored: str) -> Qrels:
    """The passages that no ranking of a collection has for a query, ordered; `ignored` is `data.ignored`."""
    if ignored == "identical_ids":
        return own_passages(row_numbers(collection.queries.ids, collection.passages.ids))
    qrels = collection.qrels
    chosen = (qrels.grades < 0) & (qrels.passages < len(collection.passages)) & (ignored == "negative_grades")
    return Qrels(qrels.queries[chosen], qrels.passages[chosen], qrels.grades[chosen])


def drop_hits(ranking: Ranking, ignored: Qrels, top_k: int | None = None) -> Ranking:
    """Remove the passages that are `ignored` for a query from its row; the hits below them move up.

    The first `top_k` of a row are kept, padded with -1; None keeps the width.
    """
    if not len(ignored.queries) and ranking.passages.shape[1] <= (top_k or ranking.passages.shape[1]):
        return ranking
    cells, _ = judged_cells(ranking.passages, ignored)
    dropped = ranking.passages < 0
    dropped.ravel()[cells] = True
    order = np.argsort(dropped, axis=1, kind="stable")[:, :top_k]
    dropped = np.take_along_axis(dropped, order, axis=1)

    def kept(values: Array, pad: float) -> Array:
        return np.where(dropped, values.dtype.type(pad), np.take_along_axis(values, order, axis=1))

    chunks = None if ranking.chunks is None else kept(ranking.chunks, -1)
    return Ranking(kept(ranking.passages, -1), kept(ranking.scores, -np.inf), chunks)


def count_relevant(ignored: Qrels, qrels: Qrels) -> int:
    """How many of the passages that are ignored for a query are judged 1 or higher for it."""
    stride = int(max(ignored.passages.max(initial=0), qrels.passages.max(initial=0))) + 1
    relevant = qrels.grades >= 1
    keys = qrels.queries[relevant] * stride + qrels.passages[relevant]
    return int(np.isin(ignored.queries * stride + ignored.passages, keys).sum())


def judged_cells(passages: Int64, qrels: Qrels) -> tuple[Int64, Int64]:
    """The cells of a ranking that are judged: int64 [c], ascending, and for each its entry in the qrels.

    Cells are numbered as in `np.ravel(passages)`.
    """
    n_queries, k = passages.shape
    highest = max(passages.max(initial=-1), qrels.passages.max(initial=-1))
    stride = int(highest + 2) | 1  # padding, -1, equals no key; odd, so that the last bits of rows differ
    rows = max(BLOCK_CELLS // max(k, 1), 1)
    cells, entries = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start in range(0, n_queries, rows):
        block = passages[start : start + rows]
        first, last = np.searchsorted(qrels.queries, (start, start + len(block)))
        row_keys = stride * np.arange(start, start + len(block))
        keys = qrels.queries[first:last] * stride + qrels.passages[first:last]
        cell, entry = _match_keys((block + row_keys[:, None]).ravel(), keys)
        cells.append(cell + start * k)
        entries.append(entry + first)
    return np.concatenate(cells), np.concatenate(entries)


def _match_keys(hits: Int64, keys: Int64) -> tuple[Int64, Int64]:
    """The positions in `hits` that hold one of `keys`, and the number of that key: int64 [matches] each.

    `keys` ascend without duplicates. A hash table with at least eight slots for each key is indexed by a
    key's last bits, and holds the number of one key with those bits, or `empty`. Most hits are unjudged and
    find an empty slot; a judged one mostly finds its own key. Only hits that find another key with the same
    last bits need a binary search.
    """
    empty = len(keys)
    keys = np.append(keys, -1)  # keys[empty] equals no key
    last_bits = (1 << (8 * empty).bit_length()) - 1
    table = np.full(last_bits + 1, empty, dtype=np.int32)
    table[keys[:-1] & last_bits] = np.arange(empty)
    slots = table[hits & last_bits]
    position = np.flatnonzero(slots != empty)
    entry, hits = slots[position].astype(np.int64), hits[position]
    other = np.flatnonzero(keys[entry] != hits)
    entry[other] = np.searchsorted(keys[:-1], hits[other])
    match = keys[entry] == hits
    return position[match], entry[match]


def random_hits(ranking: Ranking, qrels: Qrels, passages: int) -> tuple[int, float] | None:
    """Relevant passages among the first hits, and how many a random order of all passages has on average.

    None where there are more by two standard deviations, or where too few hits could tell. The numbers of
    a random order are hypergeometric.
    """
    first = ranking.passages[:, :RANDOM_DEPTH]
    hits, cells = np.count_nonzero(first >= 0, axis=1), judged_cells(first, qrels)[1]
    relevant = np.bincount(qrels.queries[qrels.grades >= 1], minlength=len(first))
    found, share = int((qrels.grades[cells] >= 1).sum()), relevant / passages
    expected = float((hits * share).sum())
    variance = (hits * share * (1 - share) * (passages - hits) / max(passages - 1, 1)).sum()
    possible = np.minimum(hits, relevant)
    tells = np.count_nonzero(possible) >= RANDOM_QUERIES and expected < possible.sum() / 2
    return (found, round(expected, 1)) if tells and found <= expected + 2 * variance**0.5 else None


def short_rankings(
    hits: Int64, measures: Sequence[Measure], passages: Int64 | float = inf
) -> ShortRankings | None:
    """The queries that have fewer hits, int64 [queries], than the deepest cutoff of the measures; or None.

    An approximate index may find fewer passages than asked for, and a run file may be cut. `passages`, int64
    [queries], is how many there are to find; infinite where that is not known.
    """
    reach = np.minimum(passages, max((measure.cutoff or 0 for measure in measures), default=0))
    short = int(np.count_nonzero(hits < reach))
    return ShortRankings(queries=short, fewest=int(hits.min()), cutoff=int(reach.max())) if short else None


def tied_at_cutoffs(ranking: Ranking, measures: Sequence[Measure]) -> BoolArray:
    """Whether the hits at ranks k and k + 1 have equal scores, bool [queries]; k is a measure's cutoff.

    Hits below the ranking's end are unknown and do not count.
    """
    cutoffs = {measure.cutoff for measure in measures if measure.cutoff}
    last = np.array([k for k in cutoffs if k < ranking.passages.shape[1]], dtype=np.int64)
    equal = ranking.scores[:, last - 1] == ranking.scores[:, last]
    tied: BoolArray = (equal & (ranking.passages[:, last] >= 0)).any(axis=1)
    return tied
