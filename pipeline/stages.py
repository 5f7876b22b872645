"""How is each stage made? Six functions, each from the artifacts of earlier stages to the files of its own.

Data, passages, queries, index, search, evaluate: `benchmark` decides which of them have to run.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import data
from pipeline.core.machine import Meter
from pipeline.core.progress import Bar
from pipeline.core.records import Collection, Float64, Ranking
from pipeline.data.storage import CORPUS, QUERIES
from pipeline.encoders.batching import Usage
from pipeline.encoders.precomputed import Precomputed
from pipeline.engines import Engine, Job, Part, Piece, indexing
from pipeline.engines.work import Encode, Search, merge, nothing_found
from pipeline.models.model import Role
from pipeline.storage import vectors
from pipeline.storage.artifacts import Artifact, Draft

if TYPE_CHECKING:
    from pipeline.benchmark import Benchmark

TAG = "benchmarco"  # the last column of run.trec
PARTS = 4  # for each worker, of the vectors to search: the last to end is waited for that much less
TEXTS: dict[Role, str] = {"passages": CORPUS, "queries": QUERIES}


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
    config, collection = benchmark.config.model, benchmark.collection
    if isinstance(benchmark.model, Precomputed):
        benchmark.model.match(collection)
    texts = collection.passages if role == "passages" else collection.queries
    ranges = vectors.missing(len(texts), config.shard_rows, draft.whole)
    todo, usage = sum(stop - start for start, stop in ranges), Usage()
    stored: vectors.Precision = config.vector_precision if role == "passages" else "fp32"
    job = Encode(_alone(benchmark, TEXTS[role]), role, config.normalize, stored)
    if ranges:
        benchmark.encoding.load(len(ranges))
    with draft.aside() as aside, meter.working(), benchmark.progress(f"encode {role}", todo, "texts") as bar:
        for piece in _done(benchmark.encoding, meter, job, ranges, aside, bar):
            draft.adopt(piece.path, vectors.shard_name(*piece.part), piece.entry)
            usage.add(piece.facts)
    meter.count(len(texts), worked=todo)
    meter.note("encoding", usage.figures())
    return {"rows": len(texts)}


def make_index(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Build the index from the passages' vectors, or those of its shards that no earlier run left whole."""
    config, embeddings = benchmark.config.index, vectors.open_embeddings(benchmark.ensure("passages"))
    parts = vectors.split(len(embeddings), config.shards)
    names = {part: indexing.file_name(number, config.shards) for number, part in enumerate(parts)}
    todo = [part for part in parts if names[part] not in draft.whole]
    rows = sum(stop - start for start, stop in todo)
    job = indexing.Build(benchmark.ensure("passages").absolute(), config)
    engine = benchmark.engine if config.shards > 1 else benchmark.here
    with draft.aside() as aside, meter.working(), benchmark.progress("index", rows, "vectors") as bar:
        for piece in _done(engine, meter, job, todo, aside, bar):
            draft.adopt(piece.path, names[piece.part], piece.entry)
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
        path = benchmark.ensure("index").path(indexing.file_name(0, 1))
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
    config, collection, engine = benchmark.config, benchmark.collection, benchmark.engine
    of = {name: benchmark.ensure(name).absolute() for name in benchmark.needs("search")}
    asked, corpus = vectors.read_all(of["queries"]), of["data"].only(CORPUS)
    job: Search | indexing.Ask
    if benchmark.spread:
        stored = vectors.open_embeddings(of["passages"])
        rows, dimension, cuts = len(stored), stored.dimension, PARTS * engine.workers
        job = Search(of["passages"], of["queries"], corpus, config.index.metric, config.search)
    else:
        index = of["index"].facts
        rows, dimension, cuts = index["rows"], index["dimension"], config.index.shards
        job = indexing.Ask(of["index"], of["queries"], corpus, config.index, config.search)
    vectors.match(rows, dimension, len(collection.passages), asked)
    parts, best = vectors.split(rows, cuts), nothing_found(len(asked))
    todo = len(asked) * len(parts)
    with draft.aside() as aside, meter.working(), benchmark.progress("search", todo, "queries") as bar:
        for piece in _done(engine, meter, job, parts, aside, bar):
            best = merge(best, piece, config.search.top_k, collection.passages.ids)
    meter.count(len(asked))
    facts = keep_ranking(draft, collection, best)
    meter.stop()
    if benchmark.exact and isinstance(job, indexing.Ask):
        measuring = indexing.Measure(**vars(job))
        with draft.aside() as aside, benchmark.progress("measure", len(parts), "shards") as bar:
            shards = [piece.facts for piece in engine.each(measuring, parts, aside, bar)]
        facts["index"] = {**_cost(of["index"]), **indexing.together(shards)}
    return facts


def _cost(index: Artifact) -> dict[str, Any]:
    """What an index took, to build and on disk."""
    return {"build_seconds": index.manifest["made"]["seconds"], "disk_bytes": index.bytes}


def _alone(benchmark: Benchmark, name: str) -> Artifact:
    """One file of the data, for a job."""
    return benchmark.ensure("data").only(name).absolute()


def _done(
    engine: Engine, meter: Meter, job: Job, parts: list[Part], folder: Path, bar: Bar
) -> Iterator[Piece]:
    """What the engine makes of each part; who made how many is noted."""
    nodes = Counter[str]()
    for piece in engine.each(job, parts, folder, bar):
        nodes[piece.node] += 1
        yield piece
    meter.note("engine", {"kind": engine.kind, "workers": engine.workers, "parts": dict(nodes)})


def keep_ranking(draft: Draft, collection: Collection, ranking: Ranking) -> dict[str, Any]:
    """Write a ranking as arrays and as a TREC run: what every way of searching leaves."""
    from pipeline.formats.runs import write_run

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
