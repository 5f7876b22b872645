"""The cache: artifacts (what stages computed) on disk, with keys, shards, vector formats, locks and pruning.

Nothing else knows the paths of artifacts.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
