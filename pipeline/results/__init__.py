"""Results of finished benchmarks: their folders and records, their tables, and their form for other tools."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
