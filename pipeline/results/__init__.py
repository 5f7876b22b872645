"""Results of finished benchmarks: their folders, their records, and comparisons of several."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
