from .artifacts import (
    LAYOUT as LAYOUT,
)
from .artifacts import (
    Artifact as Artifact,
)
from .artifacts import (
    Draft as Draft,
)
from .artifacts import (
    Recipe as Recipe,
)
from .artifacts import (
    entry_of as entry_of,
)
from .cache import (
    PruneLimits as PruneLimits,
)
from .cache import (
    cache_entries as cache_entries,
)
from .cache import (
    describe_entries as describe_entries,
)
from .cache import (
    prune as prune,
)
from .cache import (
    verify as verify,
)
from .hashing import canonical_json as canonical_json
from .hashing import hash_file as hash_file
from .hashing import hash_json as hash_json
from .locks import hold as hold
from .ragged_shards import (
    join_and_order as join_and_order,
)
from .ragged_shards import (
    read_some_rows as read_some_rows,
)
from .ragged_shards import (
    save_rows as save_rows,
)
from .store import Store as Store
from .vector_forms import (
    quantize_binary as quantize_binary,
)
from .vector_forms import (
    quantize_int8 as quantize_int8,
)
from .vector_forms import (
    unit_vectors as unit_vectors,
)
from .vector_forms import (
    unpack_binary as unpack_binary,
)
from .vector_shards import (
    check_counts as check_counts,
)
from .vector_shards import (
    check_vectors as check_vectors,
)
from .vector_shards import (
    gather_rows as gather_rows,
)
from .vector_shards import (
    missing_ranges as missing_ranges,
)
from .vector_shards import (
    open_embeddings as open_embeddings,
)
from .vector_shards import (
    read_rows as read_rows,
)
from .vector_shards import (
    shard_name as shard_name,
)
from .vector_shards import (
    split_evenly as split_evenly,
)
