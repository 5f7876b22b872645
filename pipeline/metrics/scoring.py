"""How good is a ranking? Its grades are looked up once, then every measure reads them.

values = score(ranking, qrels, n_queries, parse_all("ndcg@10,map"))    # float64 [queries, 2]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pipeline.core.records import Float64, Int64, Qrels, Ranking
from pipeline.metrics.measures import MEASURES, Graded, Judged, best_order
from pipeline.metrics.names import Measure

BLOCK_CELLS = 1 << 16  # of a ranking at once: its temporary arrays stay in the cache


def score(ranking: Ranking, qrels: Qrels, n_queries: int, measures: Sequence[Measure]) -> Float64:
    """Score every query by every measure.

    Args:
        ranking: Rows 0 to n_queries - 1, ordered by the tie rule, no passage twice in a row.
        qrels: The judgments of the same queries.
        n_queries: How many queries there are. Each is scored: one with no hits, or with nothing relevant,
            scores 0, as in `trec_eval -c`.
        measures: In any order; those that differ only in cutoff are computed together.

    Returns:
        float64 [n_queries, measures], columns in the order of `measures`.
    """
    judged = judge(ranking, qrels, n_queries)
    whole = max(ranking.passages.shape[1], 1)
    groups: defaultdict[Measure, list[int]] = defaultdict(list)
    for column, measure in enumerate(measures):
        groups[Measure(measure.name, measure.params)].append(column)
    values = np.empty((n_queries, len(measures)))
    for measure, columns in groups.items():
        asked = [measures[column].cutoff or whole for column in columns]
        cutoffs = np.unique(np.array(asked, dtype=np.int64))
        computed = MEASURES[measure.name].compute(judged, cutoffs, **measure.settings)
        values[:, columns] = computed[:, np.searchsorted(cutoffs, asked)]
    return values


def judge(ranking: Ranking, qrels: Qrels, n_queries: int) -> Judged:
    """Look up the grade of every hit. Grades below zero become 0: judged and not relevant.

    Raises:
        ValueError: The ranking does not have a row for each query.
    """
    if ranking.passages.ndim != 2 or len(ranking.passages) != n_queries:
        raise ValueError(f"ranking of shape {ranking.passages.shape} for {n_queries} queries")
    grades = np.maximum(qrels.grades, 0)
    cells, entries = _find(ranking.passages, qrels)
    queries, ranks = np.divmod(cells, max(ranking.passages.shape[1], 1))
    return Judged(
        found=Graded(n_queries, queries, ranks + 1, grades[entries]),
        ideal=best_order(n_queries, qrels.queries, grades),
        retrieved=np.count_nonzero(ranking.passages >= 0, axis=1),
    )


def drop_identical(ranking: Ranking, own: Int64) -> Ranking:
    """Take the passage that has the query's own id out of each row; the rows below it move up.

    Args:
        ranking: [queries, k].
        own: int64 [queries], row of the passage whose id equals the query's, -1 if there is none.

    Returns:
        [queries, k], rows that lost a hit padded with -1.
    """
    kept = (ranking.passages != own[:, None]) | (ranking.passages < 0)
    if kept.all():
        return ranking
    order = np.argsort(~kept, axis=1, kind="stable")
    kept = np.take_along_axis(kept, order, axis=1)
    passages = np.where(kept, np.take_along_axis(ranking.passages, order, axis=1), -1)
    scores = np.where(kept, np.take_along_axis(ranking.scores, order, axis=1), np.float32(-np.inf))
    return Ranking(passages, scores)


def _find(passages: Int64, qrels: Qrels) -> tuple[Int64, Int64]:
    """Which cells of a ranking are judged?

    Query and passage make one key; a block of rows and its judgments are matched at a time.

    Returns:
        cells int64 [c], ascending, into the flat ranking, and entries int64 [c] into the qrels.
    """
    n_queries, k = passages.shape
    highest = max(passages.max(initial=-1), qrels.passages.max(initial=-1))
    stride = int(highest + 2) | 1  # a pad, -1, meets no key; odd, so that rows differ in their last bits
    rows = max(BLOCK_CELLS // max(k, 1), 1)
    cells, entries = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start in range(0, n_queries, rows):
        block = passages[start : start + rows]
        first, last = np.searchsorted(qrels.queries, (start, start + len(block)))
        row_keys = stride * np.arange(start, start + len(block))
        keys = qrels.queries[first:last] * stride + qrels.passages[first:last]
        cell, entry = _match((block + row_keys[:, None]).ravel(), keys)
        cells.append(cell + start * k)
        entries.append(entry + first)
    return np.concatenate(cells), np.concatenate(entries)


def _match(asked: Int64, keys: Int64) -> tuple[Int64, Int64]:
    """Where in `asked` a key stands, and which: two int64 arrays [matches]. `keys` ascend, each once.

    A small table holds, for each remainder, one key that has it: most hits are unjudged and meet none, a
    judged one mostly meets its own, and only the rest are searched for.
    """
    none = len(keys)
    keys = np.append(keys, -1)
    remainder = (1 << (8 * none).bit_length()) - 1
    table = np.full(remainder + 1, none, dtype=np.int32)
    table[keys[:-1] & remainder] = np.arange(none)
    met = table[asked & remainder]
    place = np.flatnonzero(met != none)
    entry, asked = met[place].astype(np.int64), asked[place]
    other = np.flatnonzero(keys[entry] != asked)
    entry[other] = np.searchsorted(keys[:-1], asked[other])
    exact = keys[entry] == asked
    return place[exact], entry[exact]
