"""A collection's files: three Arrow streams and an array of judgments, all memory-mapped.

`corpus.arrow`, `queries.arrow`, and `missing.arrow` with the judged passages that the corpus lacks, hold the
columns `id` and `text`; `datasets.Dataset.from_file` opens them too. `qrels.npy` is int64 [2, j]: the row of
the query and of the passage; the rows of missing passages follow those of the corpus. `grades.npy` is int64
[j], or float64 where a grade is not whole. Arrow pads its buffers by how a batch was made, so equal
collections have equal content hashes (`write_texts`), but not always equal file bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.records import Chunks, Collection, Qrels, Texts
from pipeline.data.contents import hash_rows, hexdigest
from pipeline.formats.texts import BATCH_ROWS
from pipeline.storage.artifacts import Artifact

if TYPE_CHECKING:
    import pyarrow as pa

CORPUS, QUERIES, MISSING, QRELS = "corpus.arrow", "queries.arrow", "missing.arrow", "qrels.npy"
GRADES = "grades.npy"
CHUNK_TEXTS, CHUNK_PLACES, CHUNK_BOUNDS = "chunks.arrow", "places.npy", "bounds.npy"


def write_texts(path: Path, batches: Iterable[tuple[pa.Array, pa.Array]]) -> str:
    """Write ids and texts as an Arrow stream of whole record batches, and return their hash in any order.

    `batches` are pairs of Arrow string arrays [n] without nulls.
    """
    import pyarrow as pa

    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    content, rest = 0, schema.empty_table()
    with pa.ipc.new_stream(str(path), schema) as stream:
        for ids, texts in batches:
            content += hash_rows(ids, texts)
            rest = pa.concat_tables([rest, pa.Table.from_arrays([ids, texts], schema=schema)])
            while len(rest) >= BATCH_ROWS:
                stream.write_table(rest.slice(0, BATCH_ROWS).combine_chunks())
                rest = rest.slice(BATCH_ROWS)
        if len(rest):
            stream.write_table(rest.combine_chunks())
    return hexdigest(content)


def blank(texts: pa.Array | pa.ChunkedArray) -> int:
    """How many texts are empty, or only white space and characters that are not seen, such as U+200B."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.match_substring_regex(texts, r"^[\s\p{Z}\p{Cc}\p{Cf}]*$")).as_py() or 0)


def open_collection(artifact: Artifact) -> Collection:
    """The collection of a data artifact, memory-mapped."""
    passages, queries = open_texts(artifact.path(CORPUS)), open_texts(artifact.path(QUERIES))
    missing = open_texts(artifact.path(MISSING)).ids
    rows, grades = artifact.array(QRELS), artifact.array(GRADES)
    are_pairs = rows.ndim == 2 and len(rows) == 2 and rows.dtype == np.int64
    if not are_pairs or grades.shape != rows.shape[1:] or grades.dtype not in (np.int64, np.float64):
        raise ValueError(f"{rows.dtype} of shape {list(rows.shape)}, {grades.dtype} of {list(grades.shape)}")
    for row, limit in zip(rows, (len(queries), len(passages) + len(missing)), strict=True):
        if row.min(initial=0) < 0 or row.max(initial=-1) >= limit:
            raise ValueError(f"{QRELS} judges texts that are not there")
    return Collection(passages, queries, missing, Qrels(rows[0], rows[1], grades), artifact.facts)


def open_chunks(artifact: Artifact) -> Chunks:
    """The chunks of a finished artifact, memory-mapped."""
    texts = open_texts(artifact.path(CHUNK_TEXTS))
    places, bounds = artifact.array(CHUNK_PLACES), artifact.array(CHUNK_BOUNDS)
    if places.shape != (2, len(texts)) or bounds[-1] != len(texts):
        raise ValueError(f"{len(texts)} chunks, places of shape {list(places.shape)} for them")
    return Chunks(texts, places, bounds)


def open_texts(path: Path) -> Texts:
    """The texts of an Arrow stream file, memory-mapped."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_stream(source).read_all()
    return Texts(ids=table.column("id"), texts=table.column("text"))
