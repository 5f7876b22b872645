"""Collections: the passages, queries and judgments of a benchmark, read from any layout into one form.

`identify` hashes a collection's content without parsing it, `check` refuses changed content, `load` writes
the files of a collection, `open_collection` maps them into memory, `describe` summarizes them, and
`export_texts` writes their texts for other programs. Importing this package imports neither Arrow nor a hub
library; readers import them when they are called.
"""

from pipeline.data.collection_files import open_collection
from pipeline.data.description import check_export, describe, export_texts
from pipeline.data.loading import Identity, check, identify, load

__all__ = [
    "Identity", "check", "check_export", "describe", "export_texts", "identify", "load", "open_collection",
]  # fmt: skip
