"""Measures of retrieval, equal to trec_eval's, computed on arrays. Only the light `names` is imported."""

from pipeline.metrics.names import Measure, parse_measure, parse_measures

__all__ = ["Measure", "parse_measure", "parse_measures"]
