"""Results side by side: intervals and paired tests over strata, a collection each; tables of both."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
