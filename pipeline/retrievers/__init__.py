"""Retriever kinds: each makes a ranking of a collection, in stages, and has a file of its own.

`stage` defines a stage, `retriever` what every kind offers and how rankings are stored.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
