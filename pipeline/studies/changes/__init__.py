"""What changes from one result to another: rankings, cost, and which queries most."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
