"""Collections: the passages, queries and judgments of a benchmark, read from any layout into one form.

`identify` names a collection's content without parsing it, `check` tells whether that is still its content,
`load` writes its files, `open_collection` maps them into memory, and `describe` sums it up. Importing this
package imports neither Arrow nor a hub library; a reader imports them when it is called.
"""

from pipeline.data.description import describe
from pipeline.data.identity import Identity, check, identify
from pipeline.data.loading import load
from pipeline.data.storage import open_collection

__all__ = ["Identity", "check", "describe", "identify", "load", "open_collection"]
