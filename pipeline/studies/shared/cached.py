"""A result's ranking in rows of its collection, and what the cache still holds of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.core.errors import InputError, short_repr
from pipeline.core.order import sort_hits
from pipeline.core.records import Chunks, Collection, Int64, Ranking
from pipeline.core.result_records import without_part
from pipeline.data.collection_files import open_chunks, open_collection
from pipeline.formats.runs import RunRows, read_run
from pipeline.metrics.scoring import row_numbers
from pipeline.results.folder import CollectionResult, ranking_file
from pipeline.results.records import Manifest
from pipeline.retrievers.retriever import BEST_CHUNKS, open_ranking
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store
from pipeline.storage.whole_files import PER_QUERY


def find_collection(result: CollectionResult) -> Collection | None:
    """The collection of a result, or None if it is no longer in the cache that the config names.

    Raises:
        InputError: It lacks a query of the result.
    """
    artifact = next(find_artifacts(result.manifest, "data"), None)
    if artifact is None:
        return None
    collection = open_collection(artifact)
    rows = row_numbers(pa.array(result.query_ids, pa.string()), collection.queries.ids)
    if (rows < 0).any():
        raise InputError(
            f"{result.folder / PER_QUERY}: the collection has no query "
            f"{short_repr(result.query_ids[int((rows < 0).argmax())])}",
            allowed="the queries of the collection that was searched",
            fix="run its config again; what is in the cache is not computed again",
        )
    return collection


def first_collection(results: Sequence[CollectionResult]) -> Collection:
    """The collection of results, from the first cache that still has it.

    Raises:
        InputError: None has it.
    """
    found = next(filter(None, map(find_collection, results)), None)
    if found is None:
        caches = sorted({each.manifest.cache or each.manifest.cache_here for each in results})
        raise InputError(
            f"the collection of {', '.join(result.name for result in results)} is not in its cache "
            f"({', '.join(caches)})",
            allowed="results whose collection is in the cache",
            fix="run a config again, from the same folder; nothing else is computed again",
        )
    return found


def scored_ranking(result: CollectionResult, collection: Collection) -> Ranking:
    """The ranking of a result, in rows of the collection."""
    path = ranking_file(result.folder)
    if not path.stat().st_size:  # nothing was retrieved for any query
        none = np.zeros((len(collection.queries), 0))
        return Ranking(none.astype(np.int64), none)
    run = read_run(path)
    rows = row_numbers(run.documents, collection.passages.ids)
    queries = row_numbers(run.query_ids, collection.queries.ids)
    if min(rows.min(), queries.min()) < 0:
        raise InputError(
            f"{path} has a query or a passage that its collection lacks",
            allowed="the run that benchmarco run wrote",
            fix="run its config again; what is in the cache is not computed again",
        )
    rows_of = RunRows.of(run, queries, len(collection.queries))  # at most search.top_k hits of each query
    lines, scores = sort_hits(*rows_of.laid_out(np.arange(len(collection.queries))), run.documents)
    passages = np.where(lines >= 0, rows[lines], -1)
    return Ranking(passages, scores)


def find_chunks(manifest: Manifest) -> tuple[Chunks, Int64, Int64] | None:
    """The chunks that a result's documents were found by; of a reranked result, those of its first stage.

    None where passages are whole, where several rankings are joined, or if they are not in the cache.

    Returns:
        All chunks; the documents of the ranking, int64 [queries, k]; and the number of each one's best chunk.
    """
    if "chunks" not in manifest.recipes:
        return None
    chunks, search = (next(find_artifacts(manifest, stage), None) for stage in ("chunks", "search"))
    if chunks is None or search is None:
        return None
    return open_chunks(chunks), open_ranking(search).passages, search.array(BEST_CHUNKS)


def find_artifacts(manifest: Manifest, stage: str) -> Iterator[Artifact]:
    """The cached artifacts of a stage, one of each part of the result that has the stage."""
    cache = manifest.cache_here
    for role, recipe in manifest.recipes.items() if cache else ():
        if without_part(role) == stage:
            plain = {name: value for name, value in recipe.items() if name != "key"}
            if artifact := Store(Path(cache)).load(Recipe(stage, plain)):
                yield artifact
