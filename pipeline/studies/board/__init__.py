"""A board: the results below a folder, by collection, with the history of each name."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
