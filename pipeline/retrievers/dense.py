"""The `dense` kind: one vector for each text, an index of the passages' vectors, and a search of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from pipeline import encoders, engines
from pipeline.config import EXACT as FLAT
from pipeline.config import IndexConfig, SearchConfig, VectorSettings, keyed_settings
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.machine import Meter
from pipeline.core.progress import Bar
from pipeline.core.records import Collection, Embeddings
from pipeline.data.storage import CORPUS, QUERIES
from pipeline.encoders import CalibrationCorpus, Model, Precomputed, Source
from pipeline.encoders.batching import Usage
from pipeline.engines import Engine, Job, Part, Piece, indexing
from pipeline.engines.work import Encode, Search, merge, nothing_found
from pipeline.models.model import Role
from pipeline.retrievers.retriever import Retriever, TokenCounter
from pipeline.retrievers.shared import EXACT, open_ranking, save_ranking
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, Plan, Stage
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Draft
from pipeline.storage.store import Store

SCHEMAS = {"passages": 4, "queries": 4, "index": 1, "search": 3}
EXACT_MEMORY_MB = 1024  # for the exact search that an approximate index is compared with
PARTS = 4  # for each worker, of the vectors to search: the last to end is waited for that much less
TEXTS: dict[Role, str] = {"passages": CORPUS, "queries": QUERIES}


class Dense(Retriever):
    """See `pipeline.retrievers.retriever.Retriever`."""

    @property
    def settings(self) -> VectorSettings:
        """The model section."""
        return cast("VectorSettings", self.config.model)

    @cached_property
    def model(self) -> Source:
        """The model that `model.name` names, or given vectors; int8 is calibrated on this collection."""
        found = self.identities.model(self.config.model)
        if not isinstance(found, Model):
            return found
        return replace(found, corpus=CalibrationCorpus(self.identity.passages, self.corpus))

    def stages(self) -> Plan:
        """See `Retriever.stages`; with `exact` if an approximate index is compared with exact search."""
        index, search = self.config.index, self.config.search
        plan: Plan = {
            "passages": self._vectors("passages"),
            "queries": self._vectors("queries"),
            "index": self._index(index),
        }
        plan["search"] = self._search(index, search, self._measured, self.config.engine.kind != "local")
        if self._measured:
            exact = SearchConfig(top_k=search.top_k, batch_size=search.batch_size, memory_mb=EXACT_MEMORY_MB)
            plan[EXACT] = self._search(IndexConfig(factory=FLAT, metric=index.metric), exact)
        return plan

    @property
    def _measured(self) -> bool:
        """Whether an approximate index is compared with exact search."""
        return self.config.index.factory != FLAT and self.config.search.against_exact

    def check(self, search_is_cached: bool) -> None:
        """See `Retriever.check`."""
        engines.check(self.config.engine, self.model)
        if search_is_cached:
            return
        from pipeline.search import faiss_index, gpu

        index, search = self.config.index, self.config.search
        dimension = self.model.dimension if isinstance(self.model, Model) else None
        faiss_index.check_index(index.factory, index.metric, search.parameters, dimension)
        gpu.choose_gpu(search.device, gpu.count_gpus())

    def open_engine(self, store: Store, local: bool = False) -> Engine:
        """See `Retriever.open_engine`."""
        if local:
            return engines.open_local(self.config.model, self.model, store)
        return engines.open_engine(self.config.engine, self.config.model, self.model, store)

    def token_counter(self) -> TokenCounter | None:
        """See `Retriever.token_counter`."""
        return encoders.token_counter(self.model)

    def _vectors(self, role: Role) -> Stage:
        """Encodes the passages or the queries, those shards that an earlier run did not finish."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            texts = self.identity.passages if role == "passages" else self.identity.queries
            made_by = {"model": self.model.recipe(role), **encoders.kept_keys(self.config.model, self.model)}
            return {"texts": texts, **made_by, **keyed_settings(self.config.model, role)}

        opened = vector_shards.open_embeddings if role == "passages" else vector_shards.read_all_rows
        make = partial(self._encode, role)
        return Stage(role, SCHEMAS[role], ("data",), ingredients, make, opened)

    def _encode(self, role: Role, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        config, collection = self.settings, inputs["data"]
        self._check_shards(collection)
        engine = context.engine
        if isinstance(self.model, Precomputed):
            self.model.match(collection)
            engine = context.local
        texts = collection.passages if role == "passages" else collection.queries
        missing = vector_shards.missing_ranges(len(texts), config.shard_rows, draft.whole)
        todo, usage = sum(stop - start for start, stop in missing), Usage()
        stored: vector_shards.Precision = config.vector_precision if role == "passages" else "fp32"
        corpus = inputs.artifact("data").only(TEXTS[role]).absolute()
        job = Encode(corpus, role, config.normalize, stored)
        if missing:
            engine.load(len(missing))
        bar_of = context.progress(f"encode {role}", todo, "texts")
        with draft.scratch() as aside, context.meter.working(), bar_of as bar:
            for piece in _done(engine, context.meter, job, missing, aside, bar):
                draft.adopt(piece.path, vector_shards.shard_name(*piece.part), piece.entry)
                usage.add(piece.facts)
        context.meter.count(len(texts), worked=todo)
        context.meter.note("encoding", usage.figures())
        return {"rows": len(texts)}

    def _check_shards(self, collection: Collection) -> None:
        """Refuse more index shards than there are passages."""
        passages, shards = len(collection.passages), self.config.index.shards
        if shards > passages:
            raise InputError(
                f"index.shards: {shards:,}, and the collection has {counted(passages, 'passage')}",
                allowed=f"1 to {passages:,}",
                fix="lower it",
            )

    def _index(self, index: IndexConfig) -> Stage:
        """Builds the index from the passages' vectors: the shards that an earlier run did not finish."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            return {"passages": keys["passages"], **keyed_settings(index, "index")}

        make = partial(self._build, index)
        return Stage("index", SCHEMAS["index"], ("passages",), ingredients, make, indexing.open_index)

    def _build(self, index: IndexConfig, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        embeddings: Embeddings = inputs["passages"]
        parts = vector_shards.split_evenly(len(embeddings), index.shards)
        names = {part: indexing.file_name(number, index.shards) for number, part in enumerate(parts)}
        missing = [part for part in parts if names[part] not in draft.whole]
        rows = sum(stop - start for start, stop in missing)
        job = indexing.Build(inputs.artifact("passages").absolute(), index)
        engine = context.engine if index.shards > 1 else context.local
        bar_of = context.progress("index", rows, "vectors")
        with draft.scratch() as aside, context.meter.working(), bar_of as bar:
            for piece in _done(engine, context.meter, job, missing, aside, bar):
                draft.adopt(piece.path, names[piece.part], piece.entry)
        context.meter.count(len(embeddings), worked=rows)
        return {"rows": len(embeddings), "dimension": embeddings.dimension}

    def _search(
        self, index: IndexConfig, search: SearchConfig, measured: bool = False, spread: bool = False
    ) -> Stage:
        """Searches the index; or the stored vectors, where memory is limited or workers share the search.

        Args:
            index: The index section.
            search: The search section.
            measured: Whether the index's speed is measured too.
            spread: Whether an engine of many workers does exact search part by part.
        """

        def ingredients(keys: Keys) -> dict[str, Any]:
            made_of = {"index": self._index(index).recipe(keys).key, "queries": keys["queries"]}
            return {**made_of, **({"measured": True} if measured else {}), **keyed_settings(search, "search")}

        by_vectors = search.memory_mb is not None or (spread and index.factory == FLAT)
        needs = ("data", "passages" if by_vectors else "index", "queries")
        in_parts = index.shards > 1 or (spread and by_vectors)
        make = partial(_search_parts if in_parts else _search_whole, index, search, measured)
        return Stage("search", SCHEMAS["search"], needs, ingredients, make, open_ranking)


def _search_whole(
    index: IndexConfig, search: SearchConfig, measured: bool, inputs: Inputs, draft: Draft, context: Context
) -> Facts:
    """Search in this process: the index, or the stored vectors where there is no index among the inputs."""
    from pipeline.search import searchers

    collection, queries, meter = inputs["data"], inputs["queries"], context.meter
    searcher: searchers.Searcher
    if "index" in inputs:
        searcher = searchers.open_searcher(index, search, inputs["index"].path(indexing.file_name(0, 1)))
    else:
        searcher = searchers.StreamingSearcher(index, search, inputs["passages"])
    vector_shards.check_counts(searcher.count, searcher.dimension, len(collection.passages), queries)
    with meter.working(), context.progress("search", len(queries), "queries") as bar:
        ranking = searcher.search(queries, collection.passages.ids, bar)
    meter.count(len(queries))
    facts = save_ranking(draft, collection, ranking)
    meter.stop()
    if measured and isinstance(searcher, searchers.ApproximateSearcher):
        facts["index"] = {**inputs["index"].cost, **searcher.measure(queries)}
    return facts


def _search_parts(
    index: IndexConfig, search: SearchConfig, measured: bool, inputs: Inputs, draft: Draft, context: Context
) -> Facts:
    """Have an engine search part by part, and merge the hits: stored vectors, or the index's shards."""
    collection, queries, meter, engine = inputs["data"], inputs["queries"], context.meter, context.engine
    asked, corpus = inputs.artifact("queries").absolute(), inputs.artifact("data").only(CORPUS).absolute()
    job: Search | indexing.Ask
    if "index" in inputs:
        rows, dimension, cuts = inputs["index"].rows, inputs["index"].dimension, index.shards
        job = indexing.Ask(inputs.artifact("index").absolute(), asked, corpus, index, search)
    else:
        stored = inputs["passages"]
        rows, dimension, cuts = len(stored), stored.dimension, PARTS * engine.workers
        job = Search(inputs.artifact("passages").absolute(), asked, corpus, index.metric, search)
    vector_shards.check_counts(rows, dimension, len(collection.passages), queries)
    parts, best = vector_shards.split_evenly(rows, cuts), nothing_found(len(queries))
    bar_of = context.progress("search", len(queries) * len(parts), "queries")
    with draft.scratch() as aside, meter.working(), bar_of as bar:
        for piece in _done(engine, meter, job, parts, aside, bar):
            best = merge(best, piece, search.top_k, collection.passages.ids)
    meter.count(len(queries))
    facts = save_ranking(draft, collection, best)
    meter.stop()
    if measured and isinstance(job, indexing.Ask):
        measuring = indexing.Measure(**vars(job))
        with draft.scratch() as aside, context.progress("measure", len(parts), "shards") as bar:
            shards = [piece.facts for piece in engine.each(measuring, parts, aside, bar)]
        facts["index"] = {**inputs["index"].cost, **indexing.together(shards)}
    return facts


def _done(
    engine: Engine, meter: Meter, job: Job, parts: list[Part], folder: Path, bar: Bar
) -> Iterator[Piece]:
    """What the engine makes of each part; the meter notes how many parts each machine did."""
    nodes = Counter[str]()
    for piece in engine.each(job, parts, folder, bar):
        nodes[piece.node] += 1
        yield piece
    meter.note("engine", {"kind": engine.kind, "workers": engine.workers, "parts": dict(nodes)})
