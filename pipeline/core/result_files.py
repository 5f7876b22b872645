"""Names of the files in a result folder, and whether edited ones are read."""

from __future__ import annotations

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
