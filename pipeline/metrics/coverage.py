"""What a ranking or its judgments lack: hits down to the deepest cutoff, and grades of the hits.

ranges = unjudged_ranges(ranking, qrels, n_queries, parse_measures("ndcg@10,map@100"))

A measure counts unjudged documents as not relevant. The lowest and the highest value are those over all ways
to give every unjudged document in the top k a grade of the scale: any grade that occurs in the judgments, or
none. Grades from outside of the top k, and other ideal rankings that they would make, are not considered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from pipeline.core.display import counted
from pipeline.core.records import Float64, Int64, Qrels, Ranking
from pipeline.metrics.binary import judged_share
from pipeline.metrics.graded import Ends, JudgedRanking
from pipeline.metrics.names import MEASURES, Measure
from pipeline.metrics.scoring import judge_ranking

BLOCK_CELLS = 1 << 18  # ranks that are looked at at once


@dataclass(frozen=True)
class UnjudgedRange:
    """A measure of every query, as unjudged documents in its top k could make it.

    Attributes:
        judged: float64 [queries], judged documents over retrieved ones in the top k.
        lowest: float64 [queries].
        highest: float64 [queries].
    """

    judged: Float64
    lowest: Float64
    highest: Float64

    def means(self, queries: Int64) -> dict[str, float]:
        """The means over some rows, int64 [n], by name."""
        return {field.name: float(getattr(self, field.name)[queries].mean()) for field in fields(self)}


def unjudged_ranges(
    ranking: Ranking, qrels: Qrels, n_queries: int, measures: Sequence[Measure]
) -> dict[str, UnjudgedRange]:
    """The range of each measure by its name; none of those for which `Definition.unjudged` is None.

    Nor is there one of a measure without a cutoff, or of a condensed list.

    Arguments are those of `pipeline.metrics.scoring.compute_measures`.
    """
    judged = judge_ranking(ranking, qrels, n_queries)
    grade = max(int(qrels.grades.max(initial=0)), 1)
    ranges = {}
    for measure in measures:
        if measure.cutoff and not measure.condensed and MEASURES[measure.name].unjudged:
            rows = max(BLOCK_CELLS // min(measure.cutoff, max(ranking.passages.shape[1], 1)), 1)
            parts = [
                _ends(judged.rows(start, min(start + rows, n_queries)), measure, grade)
                for start in range(0, n_queries, rows)
            ]
            low, high = (np.concatenate(side) for side in zip(*parts, strict=True))
            (share,) = judged_share(judged, np.array([measure.cutoff])).T
            ranges[str(measure)] = UnjudgedRange(share, low, high)
    return ranges


def _ends(judged: JudgedRanking, measure: Measure, grade: int) -> Ends:
    """The ends of one measure."""
    definition, cutoff = MEASURES[measure.name], measure.cutoff or 0
    if definition.unjudged != "raise":
        assert definition.unjudged is not None
        return definition.unjudged(judged, cutoff, grade, **measure.settings)
    cutoffs = np.array([cutoff])
    best = judged.graded(judged.unjudged(cutoff), grade)
    low, high = (definition.compute(one, cutoffs, **measure.settings)[:, 0] for one in (judged, best))
    return low, high


def short_rankings(
    ranking: Ranking, measures: Sequence[Measure], passages: int | None = None
) -> dict[str, Any] | None:
    """How many queries have fewer hits than the deepest cutoff of the measures; None if none has.

    An approximate index may find fewer passages than asked for, a search by words only those that share one
    with the query, and a run file may be cut.

    Args:
        ranking: The hits, by query.
        measures: What is computed of them.
        passages: How many passages there are to find; None where that is not known.

    Returns:
        `queries`: their number; `fewest`: the hits of the one with the fewest; `cutoff`: the deepest cutoff.
    """
    cutoff = max((measure.cutoff or 0 for measure in measures), default=0)
    if passages is not None:
        cutoff = min(cutoff, passages)
    hits = np.count_nonzero(ranking.passages >= 0, axis=1)
    hits = hits[hits > 0] if passages is None else hits  # queries that a run file lacks are counted elsewhere
    short = int(np.count_nonzero(hits < cutoff))
    return {"queries": short, "fewest": int(hits.min()), "cutoff": cutoff} if short else None


def depth_note(queries: int, fewest: int, cutoff: int) -> str:
    """What `short_rankings` found, as a sentence without its full stop."""
    return (
        f"{counted(queries, 'query has', 'queries have')} fewer than {cutoff:,} hits, at least {fewest:,}: "
        "a measure of deeper ranks finds nothing there"
    )
