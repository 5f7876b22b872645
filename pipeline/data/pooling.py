"""Rankings that choose the passages of a slice, and how near another ranking is to one of them.

What is not judged counts as not relevant, so a passage without a judgment that a slice leaves out moves those
below it up. A retriever that scores each passage by itself thus gets measures as high as on the whole corpus
or higher. Those to rank k are the same if its first k passages of each query are all in the slice, because
its ranking chose them; of other retrievers, a slice lacks passages that they would rank high. BM25 weighs
terms by the passages it has, so a slice changes its ranking.

Fröbe et al., "Corpus Subsampling: Estimating the Effectiveness of Neural Retrieval Models on Large Corpora",
ECIR 2025, choose passages by the rankings of many systems.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config import PooledSlice
from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Collection, Facts, Int32, Int64, Ranking, from_numpy
from pipeline.core.result_files import CHECKSUMS, RANKING
from pipeline.data.collection_files import POOL
from pipeline.formats.run_rows import RunRows
from pipeline.formats.runs import read_run
from pipeline.storage.artifacts import Draft
from pipeline.storage.checksums import check_files
from pipeline.storage.hashing import hash_user_file

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PooledRanking:
    """The first passages of each query in a ranking.

    Attributes:
        passage_ids: Those passages, each once.
        numbers: int64 [queries, k], best first: the position in `passage_ids`, -1 for padding.
    """

    path: Path
    passage_ids: list[str]
    numbers: Int64


def ranking_files(pool: PooledSlice) -> list[Path]:
    """The run file of each ranking of a pool; a result folder has one.

    Raises:
        InputError: A path is no file and no folder with a ranking.
    """
    for folder in map(Path, pool.of):
        if (folder / CHECKSUMS).is_file():
            check_files(folder, [RANKING])
    files = [Path(path) / RANKING if Path(path).is_dir() else Path(path) for path in pool.of]
    if absent := [str(path) for path in files if not path.is_file()]:
        raise InputError(
            f"data.corpus.of: there is no file {absent[0]}",
            allowed=f"result folders, which hold {RANKING}, and TREC run files",
            fix="run the benchmark of that folder first, on the whole corpus, or correct the path",
        )
    return files


def hash_rankings(pool: PooledSlice) -> list[str]:
    """SHA-256 of the file of each ranking."""
    return [hash_user_file(path) for path in ranking_files(pool)]


def read_pool(pool: PooledSlice, query_ids: pa.ChunkedArray) -> list[PooledRanking]:
    """The first `pool.top` passages that each ranking has for the queries.

    Raises:
        InputError: A file cannot be read, or has none of the queries.
    """
    from pipeline.core.order import sort_hits_by_id
    from pipeline.metrics.evaluation import row_numbers

    read = []
    for path in ranking_files(pool):
        run, count = read_run(path), len(query_ids)
        rows_of = RunRows.of(run, row_numbers(run.query_ids, query_ids, absent=count), count)
        if not rows_of.lines.size:
            raise InputError(
                f"data.corpus.of: {path} has none of the {count:,} queries of the collection, "
                f"such as {short_repr(query_ids[0].as_py())}",
                allowed="rankings of the queries and the whole corpus of this collection",
                fix="name another file",
            )
        lines = np.full((count, min(pool.top, int(rows_of.counts.max()))), -1)
        for rows, hits, scores in rows_of.parts():
            best = sort_hits_by_id(hits, scores, run.documents)[0][:, : pool.top]
            lines[rows, : best.shape[1]] = best
        names = run.documents.take(from_numpy(lines[lines >= 0])).to_pylist()
        number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
        numbers = np.full(lines.shape, -1, np.int64)
        numbers[lines >= 0] = [number_of[name] for name in names]
        read.append(PooledRanking(path, list(number_of), numbers))
    return read


def write_pool(draft: Draft, pool: list[PooledRanking], corpus_ids: pa.ChunkedArray) -> None:
    """Write the rankings as `Collection.pool`, by the passages' rows in the slice.

    Raises:
        InputError: A ranking has no passage of the corpus.
    """
    import pyarrow as pa

    from pipeline.metrics.evaluation import row_numbers

    k = max(each.numbers.shape[1] for each in pool)
    table: Int32 = np.full((len(pool), len(pool[0].numbers), k), -1, np.int32)
    for each, filled in zip(pool, table, strict=True):
        rows = row_numbers(pa.array(each.passage_ids, pa.string()), corpus_ids)
        if rows.max() < 0:
            raise InputError(
                f"data.corpus.of: {each.path} has no passage of this corpus, "
                f"but {short_repr(each.passage_ids[0])}",
                allowed="rankings of the whole corpus of this collection",
                fix="name another file",
            )
        filled[:, : each.numbers.shape[1]] = np.where(each.numbers >= 0, rows[each.numbers], -1)
    draft.save_array(POOL, table)


def describe_slice(collection: Collection) -> Facts | None:
    """The size of a slice, and what is in it for which reason; None of a whole corpus.

    In the returned facts, `judged` and `judged_of` count judged passages, in the slice and in all; `top` and
    `pool`, where rankings chose the slice, are how deep they were read, and for each the number of `passages`
    that it chose and of those that no other did.
    """
    facts: Facts = collection.facts
    outside, passages = facts["outside_slice"]["passages"], len(collection.passages)
    if not outside and collection.pool is None:
        return None
    judged = np.unique(collection.qrels.passages)
    found: Facts = {"passages": passages, "of": passages + outside}
    found |= {"judged": int((judged < passages).sum()), "judged_of": len(judged)}
    if collection.pool is not None:
        chosen = np.zeros((len(collection.pool), passages), np.bool_)
        for row, table in zip(chosen, collection.pool, strict=True):
            row[np.unique(table[table >= 0])] = True
        alone = chosen & (chosen.sum(axis=0) == 1)
        alone[:, judged[judged < passages]] = False
        found["top"] = collection.pool.shape[2]
        found["pool"] = [
            {"passages": int(row.sum()), "alone": int(own.sum())}
            for row, own in zip(chosen, alone, strict=True)
        ]
    return found


def nearest_ranking(collection: Collection, ranking: Ranking) -> tuple[int, float]:
    """The ranking of a slice's pool that another is nearest to, and the share of passages it shares with it.

    The share is of the first k passages of a query, mean over queries; k is the pool's depth, or that of the
    ranking where it is less.
    """
    pool = collection.pool
    assert pool is not None
    k = min(pool.shape[2], ranking.passages.shape[1])
    shares = []
    for table in pool:
        of_query = [
            np.isin(kept[kept >= 0], own).mean()
            for kept, own in zip(table[:, :k], ranking.passages[:, :k], strict=True)
            if (kept >= 0).any()
        ]
        shares.append(float(np.mean(of_query)) if of_query else 0.0)
    best = int(np.argmax(shares))
    return best, shares[best]
