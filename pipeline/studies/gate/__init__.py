"""Whether a result is worse than a baseline by no more than a margin: pass, fail or undecided."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
