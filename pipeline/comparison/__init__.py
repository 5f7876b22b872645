"""Comparison of results over strata, a collection each: pairs, verdicts of gates, groups of queries."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
