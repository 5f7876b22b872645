"""A collection's files: three Arrow streams and an array of judgments, all memory-mapped; and their hashes.

`corpus.arrow`, `queries.arrow`, and `missing.arrow` with the judged passages that the corpus lacks, hold the
columns `id` and `text`; `datasets.Dataset.from_file` opens them too. `qrels.npy` is int64 [2, j]: the row of
the query and of the passage; the rows of missing passages follow those of the corpus. `grades.npy` is int64
[j], or float64 where a grade is not whole. Arrow pads its buffers by how a batch was made, so equal
collections have equal content hashes (`write_texts`), but not always equal file bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.records import Array, BoolArray, Chunks, Collection, Facts, Int64, Qrels, Texts, from_numpy
from pipeline.formats.judgments import Judgments
from pipeline.formats.texts import BATCH_ROWS
from pipeline.storage.artifacts import Artifact, Draft

if TYPE_CHECKING:
    import pyarrow as pa

CORPUS, QUERIES, MISSING, QRELS = "corpus.arrow", "queries.arrow", "missing.arrow", "qrels.npy"
GRADES = "grades.npy"
HASH_BYTES = 32
CHUNK_TEXTS, CHUNK_PLACES, CHUNK_BOUNDS = "chunks.arrow", "places.npy", "bounds.npy"


def write_texts(path: Path, batches: Iterable[tuple[pa.Array, pa.Array]]) -> str:
    """Write ids and texts as an Arrow stream of whole record batches, and return their hash in any order.

    `batches` are pairs of Arrow string arrays [n] without nulls.
    """
    import pyarrow as pa

    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    rest = schema.empty_table()
    content = hash_rows(rest.column("id"), rest.column("text"))
    with pa.ipc.new_stream(str(path), schema) as stream:
        for ids, texts in batches:
            content = hash_rows(ids, texts, content)
            rest = pa.concat_tables([rest, pa.Table.from_arrays([ids, texts], schema=schema)])
            while len(rest) >= BATCH_ROWS:
                stream.write_table(rest.slice(0, BATCH_ROWS).combine_chunks())
                rest = rest.slice(BATCH_ROWS)
        if len(rest):
            stream.write_table(rest.combine_chunks())
    return content


def write_judgments(
    draft: Draft, judgments: Judgments, kept: BoolArray, query_rows: Int64, passage_rows: Int64, size: int
) -> Qrels:
    """Write the judgments that `kept`, bool [j], chooses, by row number, sorted.

    Rows are int64, of each of `query_ids` and of `passage_ids`; -1 is a passage that the corpus lacks. These
    are written before, sorted: they get the rows after the corpus' own, of which there are `size`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    queries, judged = judgments.queries[kept], judgments.passages[kept]
    missing = np.unique(judged[passage_rows[judged] < 0])
    ids = judgments.passage_ids.take(from_numpy(missing))
    by_id = pc.sort_indices(ids)
    with draft.file(MISSING) as path:
        write_texts(path, [(ids.take(by_id).cast("string"), pa.repeat("", len(missing)))])
    rows = passage_rows.copy()
    rows[missing[by_id.to_numpy()]] = size + np.arange(len(missing))
    order = np.lexsort((rows[judged], query_rows[queries]))
    qrels = Qrels(query_rows[queries][order], rows[judged][order], judgments.grades[kept][order])
    draft.save_array(QRELS, np.stack([qrels.queries, qrels.passages]).astype("<i8"))
    draft.save_array(GRADES, qrels.grades.astype("<f8" if qrels.grades.dtype.kind == "f" else "<i8"))
    return qrels


def open_collection(artifact: Artifact) -> Collection:
    """The collection of a data artifact, memory-mapped."""
    passages, queries = open_texts(artifact.folder / CORPUS), open_texts(artifact.folder / QUERIES)
    missing = open_texts(artifact.folder / MISSING).ids
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
    texts = open_texts(artifact.folder / CHUNK_TEXTS)
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


def hash_rows(ids: pa.Array | pa.ChunkedArray, texts: pa.Array | pa.ChunkedArray, others: str = "") -> str:
    """A hash of rows of an id and a text, Arrow strings [n] without nulls, in any order: 64 hex digits.

    It is the sum, modulo 2^256, of each row's BLAKE2b hash, and of `others`: the hash of further rows of the
    same whole. It tells data apart that differ by accident, and does not withstand a search for collisions.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    total = int.from_bytes(bytes.fromhex(others), "little")
    for batch in pa.table({"id": ids, "text": texts}).to_batches(max_chunksize=BATCH_ROWS):
        rows = pc.binary_join_element_wise(*batch.columns, "\t")  # which no id holds
        for row in rows.cast(pa.binary()).to_pylist():
            total += int.from_bytes(blake2b(row, digest_size=HASH_BYTES).digest(), "little")
    return (total % (1 << 8 * HASH_BYTES)).to_bytes(HASH_BYTES, "little").hex()


def contents_of(collection: Collection, queries: Int64) -> dict[str, str]:
    """Hashes of the passages, of the texts of the judged queries, which are int64 rows, and of the judgments.

    They are those of the same data in any order, of any form or source; see `hash_rows`.
    """
    rows, qrels = from_numpy(queries), collection.qrels
    texts = hash_rows(collection.queries.ids.take(rows), collection.queries.texts.take(rows))
    judged = hash_judgments(
        collection.queries.ids.take(from_numpy(qrels.queries)),
        collection.judged_ids.take(from_numpy(qrels.passages)),
        qrels.grades,
    )
    passages: Facts = collection.facts["content"]  # type: ignore[assignment]
    return {"passages": passages["passages"], "queries": texts, "qrels": judged}


def hash_judgments(
    queries: pa.Array | pa.ChunkedArray, passages: pa.Array | pa.ChunkedArray, grades: Array
) -> str:
    """A hash of judgments by their ids, the same in any order and for grades such as 1 and 1.0."""
    import pyarrow.compute as pc

    values = pc.cast(from_numpy(np.asarray(grades, np.float64)), "string")
    graded = pc.binary_join_element_wise(queries.cast("string"), values, "\t")
    return hash_rows(graded, passages.cast("string"))
