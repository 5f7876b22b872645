"""Kernels that Numba compiles for this processor: forward passes of encoders in integers, and exact searches.

The package has two doors, and nothing else here is imported from outside: `vectors` computes vectors of token
batches, `nearest` finds the rows that are nearest to queries.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
