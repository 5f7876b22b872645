"""Rankings that end before the deepest rank that a measure looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.display import counted
from pipeline.core.records import Ranking
from pipeline.metrics.names import Measure


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
