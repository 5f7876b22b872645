"""Whether the vector of a text depends on its batch: the same passages alone, together and reordered."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
