"""How is each stage made? Six functions, each from the artifacts of earlier stages to the files of its own.

Data, passages, queries, index, search, evaluate: `benchmark` decides which of them have to run.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import data, vectors
from pipeline.artifacts import Artifact, Draft
from pipeline.encoders.batching import Usage
from pipeline.encoders.models import Role
from pipeline.machine import Meter
from pipeline.records import Collection, Ranking

if TYPE_CHECKING:
    from pipeline.benchmark import Benchmark

TAG = "benchmarco"  # the last column of run.trec


def make_data(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Read, check and slice the collection."""
    facts = data.load(benchmark.config.data, draft, benchmark.progress)
    meter.count(facts["passages"])
    return facts


def make_passages(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Encode the corpus."""
    return _embed(benchmark, "passages", draft, meter)


def make_queries(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Encode the queries."""
    return _embed(benchmark, "queries", draft, meter)


def _embed(benchmark: Benchmark, role: Role, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Encode the shards that an earlier run did not leave whole."""
    config, collection = benchmark.config.model, benchmark.collection
    texts = collection.passages if role == "passages" else collection.queries
    ranges = vectors.missing(len(texts), config.shard_rows, draft.whole)
    todo, usage = sum(stop - start for start, stop in ranges), Usage()
    if ranges:
        benchmark.encoder.load()
    with meter.working(), benchmark.progress(f"encode {role}", todo, "texts") as bar:
        for start, stop in ranges:
            made = benchmark.encoder.encode(texts, range(start, stop), role, usage, bar)
            vectors.check(made, texts.ids.slice(start, stop - start).to_pylist(), config.normalize)
            vectors.write(draft, start, made)
    meter.count(len(texts), worked=todo)
    meter.note("encoding", usage.figures())
    return {"rows": len(texts)}


def make_index(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Build the index from the passages' shards."""
    from pipeline.search import faiss_index

    embeddings = vectors.open_embeddings(benchmark.ensure("passages"))
    with meter.working(), benchmark.progress("index", len(embeddings), "vectors") as bar:
        index = faiss_index.build(embeddings, benchmark.config.index.factory, bar)
    with draft.file("index.faiss") as path:
        faiss_index.write(index, path)
    meter.count(len(embeddings))
    return {"rows": len(embeddings), "dimension": embeddings.dimension}


def make_search(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Search the index for every query."""
    from pipeline.metrics.order import descending_id_rank
    from pipeline.search import faiss_index

    index = faiss_index.read(benchmark.ensure("index").path("index.faiss"))
    queries = np.concatenate(vectors.open_embeddings(benchmark.ensure("queries")).shards)
    collection, search = benchmark.collection, benchmark.config.search
    id_rank = descending_id_rank(collection.passages.ids)
    with meter.working(), benchmark.progress("search", len(queries), "queries") as bar:
        ranking = faiss_index.search(index, queries, search.top_k, id_rank, search.batch_size, bar)
    meter.count(len(queries))
    return keep_ranking(draft, collection, ranking)


def keep_ranking(draft: Draft, collection: Collection, ranking: Ranking) -> dict[str, Any]:
    """Write a ranking as arrays and as a TREC run: what every way of searching leaves."""
    from pipeline.metrics.trec import write_run

    for name, array in (("passages.npy", ranking.passages), ("scores.npy", ranking.scores)):
        with draft.file(name) as path, open(path, "wb") as file:
            np.save(file, array, allow_pickle=False)
    with draft.file("run.trec") as path, open(path, "wb") as file:
        write_run(file, collection.queries.ids, collection.passages.ids, ranking, TAG)
    return {"queries": len(ranking.passages), "depth": int(ranking.passages.shape[1])}


def open_ranking(artifact: Artifact) -> Ranking:
    """The search stage's result, memory-mapped."""
    arrays = (
        np.load(artifact.path(name), mmap_mode="r", allow_pickle=False)
        for name in ("passages.npy", "scores.npy")
    )
    return Ranking(*arrays)


def make_evaluate(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Score the ranking: a table per query, means with their intervals."""
    from pipeline.metrics import evaluation, scoring, statistics

    collection, ranking = benchmark.collection, open_ranking(benchmark.ensure("search"))
    if benchmark.config.evaluate.ignore_identical_ids:
        own = evaluation.row_numbers(collection.queries.ids, collection.passages.ids)
        ranking = scoring.drop_identical(ranking, own)
    queries, measures = collection.queries, benchmark.measures
    values = scoring.score(ranking, collection.qrels, len(queries), measures)
    low, high = statistics.bootstrap_interval(values)
    table = io.StringIO(newline="")
    evaluation.write_per_query(table, queries.ids.to_pylist(), measures, values)
    with draft.file("per_query.csv") as path:
        path.write_bytes(table.getvalue().encode())
    meter.count(len(queries))
    names = [str(measure) for measure in measures]
    means = [float(mean) for mean in values.mean(axis=0)]
    return {
        "queries": len(queries),
        "passages": len(collection.passages),
        "metrics": dict(zip(names, means, strict=True)),
        "intervals": {name: [float(a), float(b)] for name, a, b in zip(names, low, high, strict=True)},
    }


Maker = Callable[["Benchmark", Draft, Meter], dict[str, Any]]
MAKERS: dict[str, Maker] = {
    "data": make_data,
    "passages": make_passages,
    "queries": make_queries,
    "index": make_index,
    "search": make_search,
    "evaluate": make_evaluate,
}
"""The function of each stage, in order."""
