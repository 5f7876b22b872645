"""What users notice if one result replaces another: changed rankings, unjudged passages, the cost."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
