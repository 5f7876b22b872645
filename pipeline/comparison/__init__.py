"""Comparison of results over strata, a collection each: pairs, verdicts of gates, groups of queries."""

from enum import StrEnum


class Correction(StrEnum):
    """Multiple-testing correction: what decides which differences are shown.

    Attributes:
        both: Holm's and MaxT: both must show a difference.
        holm: Holm's correction of the t-test: at most 5% of comparisons show a difference that is none.
        maxt: The randomization test over all pairs at once; see `pipeline.metrics.resampling`.
        bh: Benjamini and Hochberg's correction of the t-test: of the differences shown, 5% are none.
    """

    both = "both"
    holm = "holm"
    maxt = "maxt"
    bh = "bh"
