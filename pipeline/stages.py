"""How is each stage made? Six functions, each from the artifacts of earlier stages to the files of its own.

Data, passages, queries, index, search, evaluate: `benchmark` decides which of them have to run.
"""

from __future__ import annotations

import functools
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import data
from pipeline.core.machine import Meter
from pipeline.core.progress import Bar
from pipeline.core.records import Collection, Float64, Ranking, Texts, UInt8
from pipeline.encoders.batching import Usage
from pipeline.encoders.precomputed import Precomputed
from pipeline.engines import Done, Engine, Job, Part, jobs
from pipeline.models.model import Role
from pipeline.storage import vectors
from pipeline.storage.artifacts import Artifact, Draft

if TYPE_CHECKING:
    from pipeline.benchmark import Benchmark

TAG = "benchmarco"  # the last column of run.trec
PARTS = 4  # for each worker, of the vectors to search: the last to end is waited for that much less
PART_BYTES = 256 << 20  # of vectors, at most, in a part that is searched elsewhere


def make_data(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Read, check and slice the collection."""
    facts = data.load(benchmark.config.data, draft, benchmark.progress)
    data.check(benchmark.config.data, benchmark.sources)
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
    config, collection, model = benchmark.config.model, benchmark.collection, benchmark.model
    texts = collection.passages if role == "passages" else collection.queries
    ranges = vectors.missing(len(texts), config.shard_rows, draft.whole)
    todo, usage = sum(stop - start for start, stop in ranges), Usage()
    stored: vectors.Precision = config.vector_precision if role == "passages" else "fp32"
    job: Job
    if isinstance(model, Precomputed):
        model.match(collection)
        engine, job, inputs = benchmark.here, jobs.TakePrecomputed(model, role), _ids
    else:
        engine, job, inputs = benchmark.engine, jobs.Encode(role), _texts
        if ranges:
            engine.load(len(ranges))
    parts = [Part(*span, functools.partial(inputs, texts, *span)) for span in ranges]
    with meter.working(), benchmark.progress(f"encode {role}", todo, "texts") as bar:
        for done in _done(engine, meter, job, parts, bar):
            (made, cost), (start, stop) = done.outputs, (done.part.start, done.part.stop)
            vectors.check(made, texts.ids.slice(start, stop - start).to_pylist(), config.normalize)
            with draft.file(vectors.shard_name(start, stop)) as path:
                vectors.save(path, vectors.stored(made, start, stored))
            usage.add(cost)
    meter.count(len(texts), worked=todo)
    meter.note("encoding", usage.figures())
    return {"rows": len(texts)}


def _texts(texts: Texts, start: int, stop: int) -> Any:
    """Inputs of `jobs.Encode`."""
    return texts.texts.slice(start, stop - start).to_pylist()


def _ids(texts: Texts, start: int, stop: int) -> Any:
    """Inputs of `jobs.TakePrecomputed`."""
    return range(start, stop), texts.ids.slice(start, stop - start)


def make_index(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Build the index from the passages' vectors, or those of its shards that no earlier run left whole."""
    from pipeline.search import faiss_index

    config, passages = benchmark.config.index, benchmark.ensure("passages")
    embeddings, job = vectors.open_embeddings(passages), jobs.BuildIndex(config)
    spans = vectors.split(len(embeddings), config.shards)
    names = {start: jobs.file_name(number, config.shards) for number, (start, _) in enumerate(spans)}
    parts = [
        Part(*span, functools.partial(vectors.open_rows, passages, *span))
        for span in spans
        if names[span[0]] not in draft.whole
    ]
    rows = sum(part.stop - part.start for part in parts)
    with meter.working(), benchmark.progress("index", rows, "vectors") as bar:
        if config.shards > 1:
            for done in _done(benchmark.engine, meter, job, parts, bar):
                with draft.file(names[done.part.start]) as path:
                    done.outputs.tofile(path)
        elif parts:  # written as it is, without its bytes in memory as well
            with draft.file(names[0]) as path:
                faiss_index.write(job.build(embeddings, bar), path)
            meter.note("engine", {"kind": "local", "workers": 1, "parts": {"local": 1}})
    meter.count(len(embeddings), worked=rows)
    return {"rows": len(embeddings), "dimension": embeddings.dimension}


def make_search(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Search for every query: the index, or the stored vectors where memory is limited."""
    from pipeline.search import serving

    if benchmark.spread or benchmark.config.index.shards > 1:
        return _search_parts(benchmark, draft, meter)
    config, collection = benchmark.config, benchmark.collection
    queries = vectors.read_all(benchmark.ensure("queries"))
    searcher: serving.Searcher
    if config.search.memory_mb is not None:
        stored = vectors.open_embeddings(benchmark.ensure("passages"))
        searcher = serving.Streamed(config.index, config.search, stored)
    else:
        path = benchmark.ensure("index").path(jobs.file_name(0, 1))
        searcher = serving.open_searcher(config.index, config.search, path)
    vectors.match(searcher.count, searcher.dimension, len(collection.passages), queries)
    with meter.working(), benchmark.progress("search", len(queries), "queries") as bar:
        ranking = searcher.search(queries, collection.passages.ids, bar)
    meter.count(len(queries))
    facts = keep_ranking(draft, collection, ranking)
    meter.stop()
    if benchmark.exact and isinstance(searcher, serving.Approximate):
        facts["index"] = {**_cost(benchmark.ensure("index")), **searcher.measure(queries)}
    return facts


def _search_parts(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Have an engine search part by part, and merge what it finds: stored vectors, or the index's shards."""
    config, engine, top_k = benchmark.config, benchmark.engine, benchmark.config.search.top_k
    of = {name: benchmark.ensure(name) for name in benchmark.needs("search")}
    queries, ids = vectors.read_all(of["queries"]), benchmark.collection.passages.ids
    job: Job
    data: Callable[[int, int], Any]
    if benchmark.spread:
        stored = vectors.open_embeddings(of["passages"])
        rows, dimension = len(stored), stored.dimension
        job = jobs.SearchVectors(queries, config.index.metric, config.search)
        data = functools.partial(vectors.open_rows, of["passages"])
        spans = vectors.split(rows, max(PARTS * engine.workers, math.ceil(of["passages"].bytes / PART_BYTES)))
    else:
        rows, dimension = of["index"].facts["rows"], of["index"].facts["dimension"]
        job = jobs.SearchIndex(queries, config.index, config.search)
        spans = vectors.split(rows, config.index.shards)
        data = functools.partial(_index_shard, of["index"], spans)
    vectors.match(rows, dimension, len(ids), queries)

    def read(start: int, stop: int) -> jobs.Searched[Any]:
        return jobs.Searched(data(start, stop), ids.slice(start, stop - start), start)

    parts, best = [Part(*span, functools.partial(read, *span)) for span in spans], None
    with meter.working(), benchmark.progress("search", len(queries) * len(parts), "queries") as bar:
        for done in _done(engine, meter, job, parts, bar):
            best = jobs.merge(best, done.outputs, top_k, ids)
    meter.count(len(queries))
    if best is None:
        raise RuntimeError("a collection has passages")
    facts = keep_ranking(draft, benchmark.collection, best)
    meter.stop()
    if benchmark.exact and isinstance(job, jobs.SearchIndex):
        parts = [Part(*span, functools.partial(data, *span)) for span in spans]
        with benchmark.progress("measure", len(parts), "shards") as bar:
            shards = [done.outputs for done in engine.each(jobs.MeasureIndex(**vars(job)), parts, bar)]
        facts["index"] = {**_cost(of["index"]), **jobs.total_cost(shards)}
    return facts


def _index_shard(index: Artifact, spans: list[tuple[int, int]], start: int, stop: int) -> UInt8:
    """The file of an index's shard, memory-mapped."""
    name = jobs.file_name(spans.index((start, stop)), len(spans))
    return np.memmap(index.path(name), np.uint8, "r")


def _cost(index: Artifact) -> dict[str, Any]:
    """What an index took, to build and on disk."""
    return {"build_seconds": index.manifest["made"]["seconds"], "disk_bytes": index.bytes}


def _done(engine: Engine, meter: Meter, job: Job, parts: list[Part], bar: Bar) -> Iterator[Done]:
    """What the engine makes of each part; who made how many is noted."""
    nodes = Counter[str]()
    for done in engine.each(job, parts, bar):
        nodes[done.node] += 1
        yield done
    meter.note("engine", {"kind": engine.kind, "workers": engine.workers, "parts": dict(nodes)})


def keep_ranking(draft: Draft, collection: Collection, ranking: Ranking) -> dict[str, Any]:
    """Write a ranking as arrays and as a TREC run: what every way of searching leaves."""
    from pipeline.formats.trec import write_run

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
    from pipeline.search import loss

    collection = benchmark.collection
    queries, measures = collection.queries, benchmark.measures

    def score(ranking: Ranking) -> Float64:
        if benchmark.config.evaluate.ignore_identical_ids:
            own = evaluation.row_numbers(queries.ids, collection.passages.ids)
            ranking = scoring.drop_identical(ranking, own)
        return scoring.score(ranking, collection.qrels, len(queries), measures)

    ranking = open_ranking(benchmark.ensure("search"))
    values = score(ranking)
    low, high = statistics.bootstrap_interval(values)
    table = io.StringIO(newline="")
    evaluation.write_per_query(table, queries.ids.to_pylist(), measures, values)
    with draft.file("per_query.csv") as path:
        path.write_bytes(table.getvalue().encode())
    meter.count(len(queries))
    names = [str(measure) for measure in measures]
    means = [float(mean) for mean in values.mean(axis=0)]
    facts: dict[str, Any] = {}
    if searched := benchmark.ensure_exact():
        exact = open_ranking(searched)
        facts["against_exact"] = loss.against(
            ranking.passages, exact.passages, measures, values, score(exact)
        )
    return {
        **facts,
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
