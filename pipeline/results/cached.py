"""What the cache still holds of a result: its collection, and the vectors of its queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core.records import Chunks, Collection, Float32, Int64
from pipeline.data import open_collection
from pipeline.data.collection_files import open_chunks
from pipeline.results.records import Manifest
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store


def find_collection(manifest: Manifest) -> Collection | None:
    """The collection of a result, or None if it is no longer in the cache that the config names."""
    artifact = next(_find(manifest, "data"), None)
    return open_collection(artifact) if artifact else None


def find_query_vectors(manifest: Manifest) -> Float32 | None:
    """The vectors of a result's queries, float32 [queries, d] in the order of its collection.

    Of a result that joins rankings, those of the first part that has any; None where there are none, or not
    in the cache.
    """
    for artifact in _find(manifest, "queries"):
        shards = [name for name in artifact.files if vector_shards.is_shard(name)]
        if shards and all(name.endswith(".npy") for name in shards):
            return vector_shards.read_all_rows(artifact)
    return None


def ignored_hits(manifest: Manifest) -> set[str]:
    """What was taken out of the rankings before they were scored, as values of `data.ignored`."""
    ignored = {manifest.config.get("data", {}).get("ignored", "none")}
    if manifest.config.get("evaluate", {}).get("ignore_identical_ids"):
        ignored.add("identical_ids")
    return ignored - {"none"}


@dataclass(frozen=True)
class FoundChunks:
    """The best chunk of each document of a ranking.

    Attributes:
        chunks: All chunks.
        documents: int64 [queries, k], the documents at each rank.
        best: int64 [queries, k], the chunk that each was found by.
    """

    chunks: Chunks
    documents: Int64
    best: Int64

    def of(self, query: int, document: int) -> tuple[int, int, str] | None:
        """The characters [start, stop) of a document's best chunk for a query, and its text.

        Both are rows of the collection; None if the document was not found.
        """
        ranks = np.flatnonzero(self.documents[query] == document)
        if document < 0 or not len(ranks):
            return None
        chunk = int(self.best[query, ranks[0]])
        start, stop = self.chunks.places[:, chunk].tolist()
        return start, stop, self.chunks.texts.texts[chunk].as_py()


def find_chunks(manifest: Manifest) -> FoundChunks | None:
    """The chunks that a result's documents were found by; of a reranked result, those of its first stage.

    None where passages are whole, where several rankings are joined, or if they are not in the cache.
    """
    if "chunks" not in manifest.recipes:
        return None
    chunks, search = (next(_find(manifest, stage), None) for stage in ("chunks", "search"))
    if chunks is None or search is None:
        return None
    return FoundChunks(open_chunks(chunks), search.array("passages.npy"), search.array("chunks.npy"))


def _find(manifest: Manifest, stage: str) -> Iterator[Artifact]:
    """The cached artifacts of a stage, one of each part of the result that has the stage."""
    cache = manifest.config.get("cache")
    for role, recipe in manifest.recipes.items() if cache else ():
        if role.rpartition("/")[2] == stage:
            plain = {name: value for name, value in recipe.items() if name != "key"}
            if artifact := Store(Path(str(cache))).find(Recipe(stage, plain)):
                yield artifact
