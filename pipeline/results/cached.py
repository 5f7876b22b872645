"""What the cache still holds of a result: its collection, and the vectors of its queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.core.records import Collection, Float32
from pipeline.data import open_collection
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


def _find(manifest: Manifest, stage: str) -> Iterator[Artifact]:
    """The cached artifacts of a stage, one of each part of the result that has the stage."""
    cache = manifest.config.get("cache")
    for role, recipe in manifest.recipes.items() if cache else ():
        if role.rpartition("/")[2] == stage:
            plain = {name: value for name, value in recipe.items() if name != "key"}
            if artifact := Store(Path(str(cache))).find(Recipe(stage, plain)):
                yield artifact
