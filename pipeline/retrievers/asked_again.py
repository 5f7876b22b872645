"""A few texts asked for again, before what a server gave is reused: is it still the same model?

Each stage keeps the texts that will be asked for in its artifact. For a draft that an interrupted run left,
and for artifacts of other texts, the texts are taken from the collection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.records import Float32, Int64, Texts
from pipeline.encoders import Served
from pipeline.encoders.http.backend import ASKED_AGAIN
from pipeline.models.model import Role
from pipeline.rerankers import ServedReranker
from pipeline.retrievers.rows import RowMaking
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Artifact

FACT = "asked_again"  # its key among the facts of an artifact
Read = Callable[[Artifact, Int64], Float32]
"""Some stored rows of an artifact, see `RowFormat.read`."""


def sample(texts: Texts) -> dict[str, Any]:
    """The fact of an artifact that names the texts to ask for again, spread over all."""
    rows = spread(np.arange(len(texts)))
    return {FACT: {"rows": rows.tolist(), "texts": texts.texts.take(pa.array(rows)).to_pylist()}}


def confirm(model: Served, role: Role, read: Read, artifact: Artifact) -> None:
    """Compare vectors of a finished artifact with what the server gives now; see `Served.confirm`."""
    asked = artifact.facts[FACT]
    model.confirm(role, asked["texts"], read(artifact, np.array(asked["rows"], np.int64)))


def confirm_rows(model: Served, role: Role, making: RowMaking) -> None:
    """Compare vectors that are about to be reused with what the server gives now; see `Served.confirm`."""
    rows = spread(np.flatnonzero(~making.new))
    if len(rows):
        texts = making.texts.texts.take(pa.array(rows)).to_pylist()
        model.confirm(role, texts, np.stack([_stored(row, making) for row in rows.tolist()]))


def sample_of_pairs(pairs: Any, scores: Float32) -> dict[str, Any]:
    """The fact of a reranked ranking that names pairs to ask for again, with their scores, float32 [pairs].

    `pairs` are `pipeline.retrievers.pair_scores.Pairs`.
    """
    rows = spread(np.arange(len(scores)))
    return {FACT: {"pairs": pairs.texts(rows), "scores": scores[rows].tolist()}}


def confirm_scores(model: ServedReranker, artifact: Artifact) -> None:
    """Compare scores of a finished ranking with what the server gives now; see `ServedReranker.confirm`."""
    asked = artifact.facts[FACT]
    model.confirm(
        [(query, passage) for query, passage in asked["pairs"]], np.array(asked["scores"], np.float32)
    )


def spread(rows: Int64) -> Int64:
    """A few of some rows, spread over all."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ASKED_AGAIN)).astype(np.int64))]


def _stored(row: int, making: RowMaking) -> Float32:
    """The vector of a text that is known, or that is in the draft; float32 [dimension]."""
    known, draft = making.known, making.draft
    if known.source[row] >= 0:
        found: Float32 = making.kept.read(known.artifacts[known.source[row]], known.row[row : row + 1])[0]
        return found
    for name in draft.whole:
        if vector_shards.is_shard(name):
            start, stop = vector_shards.row_range(name)
            if start <= row < stop:
                shard = np.load(draft.folder / name, mmap_mode="r", allow_pickle=False)
                return np.array(shard[row - start], np.float32)
    raise LookupError(f"no vector of row {row}")
