"""Search, arrays in and rankings out: Faiss, exact search, MaxSim, inverted index, BM25, fusion."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
