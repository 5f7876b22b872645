"""Which queries changed most between two results, and where their relevant passages rank."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
