from .artifacts import (
    LAYOUT as LAYOUT,
    Artifact as Artifact,
    Draft as Draft,
    Recipe as Recipe,
)
from .hashing import hash_file as hash_file, hash_json as hash_json
from .ragged_shards import (
    join_rows as join_rows,
    read_some_rows as read_some_rows,
    save_shard as save_shard,
    take_rows as take_rows,
)
from .store import Store as Store, hold as hold
from .vector_shards import (
    check_counts as check_counts,
    gather_rows as gather_rows,
    missing_ranges as missing_ranges,
    open_embeddings as open_embeddings,
    quantize_binary as quantize_binary,
    quantize_int8 as quantize_int8,
    read_rows as read_rows,
    shard_name as shard_name,
    split_evenly as split_evenly,
    unit_vectors as unit_vectors,
    unpack_binary as unpack_binary,
)
from .whole_files import file_inside as file_inside
