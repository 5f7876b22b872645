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


class UnorderedHash:
    """A hash of rows in any order: the sum of the BLAKE2b hash of each, modulo 2^256.

    It tells data apart that differ by accident; it does not withstand somebody who looks for a collision.
    """

    def __init__(self) -> None:
        self._sum = 0

    def add(self, ids: pa.Array | pa.ChunkedArray, texts: pa.Array | pa.ChunkedArray) -> None:
        """Add a row for each id and its text, Arrow strings [n] without nulls."""
        import pyarrow as pa

        for batch in pa.table({"id": ids, "text": texts}).to_batches():
            (id_ends, of_ids), (text_ends, of_texts) = map(string_buffers, batch.columns)
            names, values = of_ids.data, of_texts.data
            ends, stops = id_ends.tolist(), text_ends.tolist()
            for row in range(len(batch)):
                hashed = blake2b(names[ends[row] : ends[row + 1]], digest_size=BYTES)
                hashed.update(b"\t")  # which no id holds
                hashed.update(values[stops[row] : stops[row + 1]])
                self._sum += int.from_bytes(hashed.digest(), "little")

    def hexdigest(self) -> str:
        """The hash of the rows so far, as 64 hex digits."""
        return (self._sum % (1 << 8 * BYTES)).to_bytes(BYTES, "little").hex()


def contents_of(collection: Collection, queries: Int64) -> dict[str, str]:
    """Hashes of the passages, of the texts of the judged queries, which are int64 rows, and of the judgments.

    They are those of the same data in any order, of any form or source; see `UnorderedHash`.
    """
    texts, rows, qrels = UnorderedHash(), from_numpy(queries), collection.qrels
    texts.add(collection.queries.ids.take(rows), collection.queries.texts.take(rows))
    judged = hash_judgments(
        collection.queries.ids.take(from_numpy(qrels.queries)),
        collection.judged_ids.take(from_numpy(qrels.passages)),
        qrels.grades,
    )
    passages: Facts = collection.facts["content"]  # type: ignore[assignment]
    return {"passages": passages["passages"], "queries": texts.hexdigest(), "qrels": judged}


def hash_judgments(
    queries: pa.Array | pa.ChunkedArray, passages: pa.Array | pa.ChunkedArray, grades: Array
) -> str:
    """A hash of judgments by their ids, the same in any order and for grades such as 1 and 1.0."""
    import pyarrow.compute as pc

    graded = UnorderedHash()
    values = pc.cast(from_numpy(np.asarray(grades, np.float64)), "string")
    graded.add(pc.binary_join_element_wise(queries.cast("string"), values, "\t"), passages.cast("string"))
    return graded.hexdigest()
