"""Names of the files in a result folder."""

from __future__ import annotations

METRICS = "metrics.json"
PER_QUERY = "per_query.csv"
RANKING = "run.trec"
MANIFEST = "manifest.json"
CHECKSUMS = "checksums.json"
"""Written last: a folder that has one is complete."""
SUITE = "suite.json"
"""Of a suite, beside the result folders of its collections."""
RESULT_FILES = (METRICS, PER_QUERY, RANKING, MANIFEST, CHECKSUMS, SUITE)
