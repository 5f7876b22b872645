"""Collections: the passages, queries and judgments of a benchmark, read from any layout into one form.

`identify` hashes a collection's content without parsing it, `check` refuses changed content, `load` writes
the files of a collection, `open_collection` maps them into memory, and `describe` summarizes them. Importing
this package imports neither Arrow nor a hub library; readers import them when they are called.
"""

from pipeline.data.collection_files import open_collection
from pipeline.data.description import describe
from pipeline.data.identity import Identity, check, identify
from pipeline.data.loading import load

__all__ = ["Identity", "check", "describe", "identify", "load", "open_collection"]
