"""Which texts, queries and judgments is a model benchmarked on? Read from any layout into one collection.

`identify` says what a collection is without parsing it, `check` whether it still is that, `load` makes its
files, `open_collection` maps them into memory, `describe` sums it up. Importing this imports no Arrow and no
hub library; what reads, imports them when it does.
"""

from pipeline.data.description import describe
from pipeline.data.identity import Identity, check, identify
from pipeline.data.loading import load
from pipeline.data.storage import open_collection

__all__ = ["Identity", "check", "describe", "identify", "load", "open_collection"]
