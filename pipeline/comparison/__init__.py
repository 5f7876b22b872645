"""Comparison of results over strata, a collection each: pairs, verdicts of gates, groups of queries."""
