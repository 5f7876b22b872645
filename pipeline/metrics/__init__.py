"""Measures of retrieval, equal to trec_eval's, computed on arrays.

`names` reads and prints measure names; `measures` defines each; `scoring` scores a ranking held as arrays;
`order` has the tie rule; `trec` reads and writes TREC files, parsed by `lines` and checked by `duplicates`;
`evaluation` scores them; `statistics` has the intervals and the tests. What is imported here is light; the
other modules are imported by name.
"""

from pipeline.metrics.names import Measure, parse, parse_all

__all__ = ["Measure", "parse", "parse_all"]
