"""Where the parts of a stage's work are computed: here, by a process for each device, or by a Ray cluster.

An engine runs one job on each of many parts. A job is a function of arrays: the caller reads its inputs and
gets its outputs, and alone reads and writes the cache. So a worker needs no access to the caller's disk, and
one that dies leaves nothing that looks finished.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
