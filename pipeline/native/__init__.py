"""The compiled engine: products of integers, a forward pass, and searches, for the processor at hand.

It has two doors, and nothing else here is imported from outside: `vectors` computes vectors of token batches,
`nearest` finds the rows that are nearest to queries.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
