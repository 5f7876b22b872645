from .contents import (
    PruneLimits as PruneLimits,
    cache_entries as cache_entries,
    describe_entries as describe_entries,
    prune as prune,
    verify as verify,
)
