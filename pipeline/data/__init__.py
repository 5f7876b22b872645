"""Collections: the passages, queries and judgments of a benchmark, read from any layout into one form.

`identify` hashes a collection's content without parsing it, `load` writes the files of a collection, and
`open_collection` maps them into memory. Importing this package imports neither Arrow nor a hub library;
readers import them when they are called.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
