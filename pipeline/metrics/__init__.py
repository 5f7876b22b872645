"""Measures of retrieval, equal to trec_eval's, computed on arrays, and their statistics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
