"""Names of the files in a result folder, and whether edited ones are read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

METRICS = "metrics.json"
PER_QUERY = "per_query.csv"
RANKING = "run.trec"
MANIFEST = "manifest.json"
CHECKSUMS = "checksums.json"
"""Written last: a folder that has one is complete."""
SUITE = "suite.json"
"""Of a suite, beside the result folders of its collections."""
RESULT_FILES = (METRICS, PER_QUERY, RANKING, MANIFEST, CHECKSUMS, SUITE)

TRUSTING: ContextVar[bool] = ContextVar("trusting", default=False)
"""Whether results that were edited after the run are read."""


@contextlib.contextmanager
def trusting(trust: bool = True) -> Iterator[None]:
    """Within, results that were edited are read, and their names say so."""
    before = TRUSTING.set(trust)
    try:
        yield
    finally:
        TRUSTING.reset(before)
