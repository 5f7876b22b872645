"""The artifacts of a cache: what is stored, whether it is intact, what can go."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
