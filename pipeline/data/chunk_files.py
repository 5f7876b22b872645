"""The files of chunks: their ids and texts as an Arrow stream, their places, and whose they are."""

from __future__ import annotations

from pipeline.core.records import Chunks
from pipeline.data.collection_files import open_texts
from pipeline.storage.artifacts import Artifact

TEXTS, PLACES, BOUNDS = "chunks.arrow", "places.npy", "bounds.npy"


def open_chunks(artifact: Artifact) -> Chunks:
    """The chunks of a finished artifact, memory-mapped."""
    texts = open_texts(artifact.path(TEXTS))
    places, bounds = artifact.array(PLACES), artifact.array(BOUNDS)
    if places.shape != (2, len(texts)) or bounds[-1] != len(texts):
        raise ValueError(f"{len(texts)} chunks, places of shape {list(places.shape)} for them")
    return Chunks(texts, places, bounds)
