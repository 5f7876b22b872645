"""What data hold, as hashes that neither the order of lines nor the form or source of a file changes."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.records import Array, Collection, Facts, Int64, from_numpy
from pipeline.formats.columns import string_buffers

if TYPE_CHECKING:
    import pyarrow as pa

BYTES = 32


def hash_rows(ids: pa.Array | pa.ChunkedArray, texts: pa.Array | pa.ChunkedArray) -> int:
    """A hash of rows of an id and a text, Arrow strings [n] without nulls, in any order.

    It is the sum of the BLAKE2b hash of each row, so those of parts add up to that of the whole. It tells
    data apart that differ by accident; it does not withstand somebody who looks for a collision.
    """
    import pyarrow as pa

    total = 0
    for batch in pa.table({"id": ids, "text": texts}).to_batches():
        (id_ends, of_ids), (text_ends, of_texts) = map(string_buffers, batch.columns)
        names, values = of_ids.data, of_texts.data
        ends, stops = id_ends.tolist(), text_ends.tolist()
        for row in range(len(batch)):
            hashed = blake2b(names[ends[row] : ends[row + 1]], digest_size=BYTES)
            hashed.update(b"\t")  # which no id holds
            hashed.update(values[stops[row] : stops[row + 1]])
            total += int.from_bytes(hashed.digest(), "little")
    return total


def hexdigest(total: int) -> str:
    """A sum of `hash_rows` modulo 2^256, as 64 hex digits."""
    return (total % (1 << 8 * BYTES)).to_bytes(BYTES, "little").hex()


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
    return {"passages": passages["passages"], "queries": hexdigest(texts), "qrels": judged}


def hash_judgments(
    queries: pa.Array | pa.ChunkedArray, passages: pa.Array | pa.ChunkedArray, grades: Array
) -> str:
    """A hash of judgments by their ids, the same in any order and for grades such as 1 and 1.0."""
    import pyarrow.compute as pc

    values = pc.cast(from_numpy(np.asarray(grades, np.float64)), "string")
    graded = pc.binary_join_element_wise(queries.cast("string"), values, "\t")
    return hexdigest(hash_rows(graded, passages.cast("string")))
