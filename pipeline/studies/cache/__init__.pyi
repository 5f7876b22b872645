from .contents import (
    cache_entries as cache_entries,
    describe_entries as describe_entries,
    prune as prune,
    verify as verify,
)
