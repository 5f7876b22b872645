"""The `dense` kind: one vector for each text, an index of the passages' vectors, and a search of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from pipeline import encoders, engines
from pipeline.config import FLAT, IndexConfig, SearchConfig, VectorSettings, keyed_settings
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.core.records import Collection, Float32, Texts
from pipeline.encoders import CalibrationCorpus, Model, Precomputed, Source, Usage
from pipeline.engines import Engine, Part, jobs
from pipeline.models.model import Role
from pipeline.retrievers.retriever import Retriever, TokenCounter
from pipeline.retrievers.shared import EXACT, open_ranking
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, Plan, Stage
from pipeline.retrievers.stored_index import StoredIndex, file_name
from pipeline.retrievers.vector_search import counted_parts, search_parts, search_whole
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Draft
from pipeline.storage.store import Store

SCHEMAS = {"passages": 4, "queries": 4, "index": 1, "search": 3}
EXACT_MEMORY_MB = 1024  # for the exact search that an approximate index is compared with


class Dense(Retriever[VectorSettings]):
    """See `pipeline.retrievers.retriever.Retriever`."""

    @cached_property
    def model(self) -> Source:
        """The model that `model.name` names, or precomputed vectors; this collection calibrates int8."""
        found = self.identities.model(self.settings)
        if not isinstance(found, Model):
            return found
        return replace(found, corpus=CalibrationCorpus(self.identity.passages, self.corpus))

    def stages(self) -> Plan:
        """See `Retriever.stages`; with `exact` if an approximate index is compared with exact search."""
        index, search = self.config.index, self.config.search
        measured = index.factory != FLAT and search.against_exact
        plan: Plan = {
            "passages": self._vectors("passages"),
            "queries": self._vectors("queries"),
            "index": self._index(index),
            "search": self._search(index, search, measured, spread=self.config.engine.kind != "local"),
        }
        if measured:
            exact = SearchConfig(top_k=search.top_k, batch_size=search.batch_size, memory_mb=EXACT_MEMORY_MB)
            plan[EXACT] = self._search(IndexConfig(factory=FLAT, metric=index.metric), exact)
        return plan

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

    def open_engine(self, store: Store) -> Engine:
        """See `Retriever.open_engine`; precomputed vectors are read here, and only searched elsewhere."""
        return engines.open_engine(self.config.engine, self.settings, self.model, store)

    def token_counter(self) -> TokenCounter | None:
        """See `Retriever.token_counter`."""
        return encoders.token_counter(self.model)

    def _vectors(self, role: Role) -> Stage:
        """Encodes the passages or the queries; shards that an interrupted run has finished are kept."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            texts = self.identity.passages if role == "passages" else self.identity.queries
            prepared = encoders.prepared_keys(self.settings, self.model)
            settings = keyed_settings(self.settings, role)
            return {"texts": texts, "model": self.model.recipe(role), **prepared, **settings}

        opened = vector_shards.open_embeddings if role == "passages" else vector_shards.read_all_rows
        make = partial(self._encode, role)
        return Stage(role, SCHEMAS[role], ("data",), ingredients, make, opened)

    def _encode(self, role: Role, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        config, collection = self.settings, inputs["data"]
        self._check_shards(collection)
        if isinstance(self.model, Precomputed):
            self.model.match(collection)
        texts = collection.passages if role == "passages" else collection.queries
        missing = vector_shards.missing_ranges(len(texts), config.shard_rows, draft.whole)
        todo = sum(stop - start for start, stop in missing)
        usage = Usage()
        stored: vector_shards.Precision = config.vector_precision if role == "passages" else "fp32"
        if missing and isinstance(self.model, Model):
            context.engine.load(len(missing))
        bar_of = context.progress(f"encode {role}", todo, "texts")
        with bar_of as bar, context.meter.working():
            for start, vectors, cost in self._shards(role, texts, missing, context, bar):
                stop = start + len(vectors)
                ids = texts.ids.slice(start, stop - start).to_pylist()
                vector_shards.check_vectors(vectors, ids, config.normalize)
                kept = vector_shards.to_stored_precision(vectors, start, stored)
                draft.save_array(vector_shards.shard_name(start, stop), kept)
                usage.add(cost)
        context.meter.count(len(texts), worked=todo)
        context.meter.note("encoding", usage.figures())
        return {"rows": len(texts)}

    def _shards(
        self, role: Role, texts: Texts, ranges: list[tuple[int, int]], context: Context, bar: Bar
    ) -> Iterator[tuple[int, Float32, Usage]]:
        """For each range of rows its start, its vectors float32 [rows, dimension] and what they cost."""
        if isinstance(self.model, Precomputed):
            for start, stop in ranges:
                ids = texts.ids.slice(start, stop - start)
                yield start, self.model.take(role, range(start, stop), ids), Usage(texts=stop - start)
                bar.update(stop - start)
            return

        def read(start: int, stop: int) -> list[str]:
            chosen: list[str] = texts.texts.slice(start, stop - start).to_pylist()
            return chosen

        parts = [Part(start, stop, partial(read, start, stop)) for start, stop in ranges]
        for done in counted_parts(context.engine, context.meter, partial(jobs.encode, role), parts, bar):
            yield done.part.start, *done.outputs

    def _check_shards(self, collection: Collection) -> None:
        passages = len(collection.passages)
        shards = self.config.index.shards
        if shards > passages:
            raise InputError(
                f"index.shards: {shards:,}, and the collection has {counted(passages, 'passage')}",
                allowed=f"1 to {passages:,}",
                fix="lower it",
            )

    def _index(self, index: IndexConfig) -> Stage:
        """Builds the index from the passages' vectors; finished shards of an interrupted run are kept."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            return {"passages": keys["passages"], **keyed_settings(index, "index")}

        make = partial(self._build, index)
        return Stage("index", SCHEMAS["index"], ("passages",), ingredients, make, StoredIndex)

    def _build(self, index: IndexConfig, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        from pipeline.search import faiss_index

        embeddings, meter = inputs["passages"], context.meter
        spans = vector_shards.split_evenly(len(embeddings), index.shards)
        names = {start: file_name(number, index.shards) for number, (start, _) in enumerate(spans)}
        parts = [
            Part(start, stop, partial(vector_shards.rows_of, embeddings, start, stop))
            for start, stop in spans
            if names[start] not in draft.whole
        ]
        rows = sum(part.stop - part.start for part in parts)
        if index.shards > 1:
            context.engine.start(len(parts))
        with context.progress("index", rows, "vectors") as bar, meter.working():
            if index.shards > 1:
                build = partial(jobs.build_index_bytes, index)
                for done in counted_parts(context.engine, meter, build, parts, bar):
                    with draft.file(names[done.part.start]) as path:
                        done.outputs.tofile(path)
            elif parts:  # written as it is, without a copy of its bytes in memory
                with draft.file(names[0]) as path:
                    faiss_index.write_index(jobs.build_index(index, embeddings, None, bar), path)
                meter.note("engine", {"kind": "local", "workers": 1, "parts": {"local": 1}})
        meter.count(len(embeddings), worked=rows)
        return {"rows": len(embeddings), "dimension": embeddings.dimension}

    def _search(
        self, index: IndexConfig, search: SearchConfig, measured: bool = False, spread: bool = False
    ) -> Stage:
        """Searches the index; or the stored vectors, where memory is limited or workers share the search.

        With `measured`, the index's speed is measured too. With `spread`, an engine of many workers does
        exact search part by part.
        """

        def ingredients(keys: Keys) -> dict[str, Any]:
            made_of = {"index": self._index(index).recipe(keys).key, "queries": keys["queries"]}
            return {**made_of, **({"measured": True} if measured else {}), **keyed_settings(search, "search")}

        by_vectors = search.memory_mb is not None or (spread and index.factory == FLAT)
        needs = ("data", "passages" if by_vectors else "index", "queries")
        in_parts = index.shards > 1 or (spread and by_vectors)
        make = partial(search_parts if in_parts else search_whole, index, search, measured)
        return Stage("search", SCHEMAS["search"], needs, ingredients, make, open_ranking)
