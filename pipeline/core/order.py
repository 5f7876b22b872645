"""The order of hits, including ties: the one place that defines it.

Scores fall; where two are equal, the higher document id comes first, ids compared as UTF-8 byte strings. This
is the order of trec_eval (`comp_sim_docno` in form_res_rels.c). Scores are compared in their own type: those
of a search are float32, those of a run file float64, as in trec_eval since 9.0.8.

Sorting strings is slow, and most scores differ. So rows are first sorted by score, unless they are already.
Then all hits that have the same score as a neighbour are gathered from all rows, with a group number for each
run of equal scores, and one sort by group and id orders all of them in their places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Int64, Scores, from_numpy

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 2**31 - 1
"""Most bytes of an Arrow string array."""


def descending_id_rank(ids: pa.ChunkedArray) -> Int64:
    """int64 [n]: the position of each id when ids (Arrow strings [n]) are sorted in descending order."""
    import pyarrow.compute as pc

    order = pc.sort_indices(ids, sort_keys=[("", "descending")]).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def sort_hits(passages: Int64, scores: Scores, ids: Int64 | pa.ChunkedArray) -> tuple[Int64, Scores]:
    """Sort every row of passages, [queries, k] with -1 for padding, and their scores.

    The padding comes last, with scores of -inf. A NaN among the scores is refused. `ids` is the
    `descending_id_rank` of all passages, or their ids, Arrow strings: then only tied hits' ids are read.
    """
    if np.isnan(scores).any():
        row = int(np.isnan(scores).any(axis=1).argmax())
        raise InputError(f"a score of query row {row} is NaN", allowed="numbers", fix="check the embeddings")
    pads = passages < 0
    if pads.any():
        scores = np.where(pads, scores.dtype.type(-np.inf), scores)
    wrong = (scores[:, 1:] > scores[:, :-1]) | (pads[:, :-1] > pads[:, 1:])
    rows = np.flatnonzero(wrong.any(axis=1))  # those that are not in order already
    if rows.size:
        falling = np.where(pads[rows], scores.dtype.type(np.nan), -scores[rows])  # NaN is sorted last
        order = np.argsort(falling, axis=1)
        passages, scores = passages.copy(), scores.copy()
        passages[rows] = np.take_along_axis(passages[rows], order, axis=1)
        scores[rows] = np.take_along_axis(scores[rows], order, axis=1)
    ties = np.zeros(passages.shape, dtype=np.bool_)  # whether a hit ties with the one before
    np.equal(scores[:, 1:], scores[:, :-1], out=ties[:, 1:])
    ties &= passages >= 0
    tied = ties.copy()
    tied[:, :-1] |= ties[:, 1:]
    cells = np.flatnonzero(tied)
    if cells.size:
        group = np.cumsum(~ties.ravel()[cells])  # the first hit of a run does not tie with the one before
        hits = passages.ravel()[cells]
        passages = passages.copy()
        if isinstance(ids, np.ndarray):
            rank = ids[hits]
        else:
            texts = ids.cast("large_string") if ids.nbytes > MOST_BYTES else ids
            rank = descending_id_rank(texts.take(from_numpy(hits)))
        passages.flat[cells] = hits[np.lexsort((rank, group))]
    return passages, scores
