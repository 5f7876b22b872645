"""Names of the files in a result folder."""

METRICS = "metrics.json"
PER_QUERY = "per_query.csv"
RANKING = "run.trec"
MANIFEST = "manifest.json"
"""Written last: a folder that has one is complete."""
SUITE = "suite.json"
"""Of a suite, beside the result folders of its collections."""
