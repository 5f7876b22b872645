"""Foundations of all other packages: records, errors, progress, the tie order, the machine, the hub."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
