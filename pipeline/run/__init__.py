"""The running of a benchmark: its plan, the making of artifacts, the writing of results."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
