"""Questions that a language model writes about passages, for those who have passages and no queries."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
