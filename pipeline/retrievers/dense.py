"""The `dense` kind: one vector for each text, an index of the passages' vectors, and a search of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from pipeline.config import FLAT, QUANTIZED, keyed_settings
from pipeline.core.display import Bar, counted
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float32, Int64, Ranking
from pipeline.engines.engine import check_gpus
from pipeline.retrievers import dense_search
from pipeline.retrievers.costs import VectorsCost
from pipeline.retrievers.encoding import EncodingRetriever
from pipeline.retrievers.retriever import Search
from pipeline.retrievers.rows import VectorFormat
from pipeline.retrievers.sections import ApproximateIndex
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage, StoredSize
from pipeline.retrievers.texts import search_by, search_here, search_stage, searched_ids, with_chunks
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Artifact, Draft

TEXT_BYTES = 20  # kept beside the vector of a text: its hash and its number of tokens
SCHEMAS = {"passages": 6, "queries": 6, "index": 2, "search": 5}


class Dense(EncodingRetriever):
    """One vector for each text, and a Faiss index or a quantized form of the passages' vectors."""

    @override
    def stages(self) -> Plan:
        config, settings, form = self.config, self.settings, self.source.form(self.settings)
        stored = replace(form, halves=settings.vector_precision == "fp16")
        indexed = {"truncate_dim": form.dimensions, **keyed_settings(settings, "index")}
        build = partial(dense_search.build_index, config.index)
        opened: Callable[[Artifact], object] = dense_search.StoredIndex
        quantized = settings.vector_precision in QUANTIZED
        if quantized:
            build = partial(dense_search.build_quantized, settings.vector_precision)
            opened = dense_search.open_quantized
        # the stored vectors are searched where memory is limited, or workers share them
        distributed = config.engine.kind != "local" and not config.data.chunks
        shared = distributed and config.index.factory == FLAT
        by_vectors = (config.search.memory_mb is not None or shared) and not quantized
        search = partial(self._search, self._in_shards or (distributed and by_vectors))
        searched = ("passages" if by_vectors else "index", "queries")
        plan = {
            "passages": self.encode_stage("passages", SCHEMAS["passages"], VectorFormat(stored)),
            "queries": self.encode_stage("queries", SCHEMAS["queries"], VectorFormat(form)),
            "index": Stage(
                "index",
                SCHEMAS["index"],
                needs=("passages",),
                made_of={"passages": "passages"},
                settings={"form": indexed, **keyed_settings(config.index, "index")},
                make=build,
                open=opened,
            ),
            "search": search_stage(self, SCHEMAS["search"], searched, search, {}),
        }
        return with_chunks(self, self.source.model, plan)

    @override
    def report(self, artifacts: Mapping[str, Artifact], scores: Facts, stages: Sequence[Facts]) -> Facts:
        sections, index = super().report(artifacts, scores, stages), self.config.index
        if index.factory == FLAT:
            return sections
        settings = {**index.model_dump(mode="json"), "parameters": self.config.search.parameters}
        return {**sections, ApproximateIndex.key: settings}

    @override
    def check(self) -> None:
        super().check()
        whole, kept = self._dimensions
        if whole and kept:
            vector_shards.check_dimensions(kept, whole)
        from pipeline.search import faiss_index

        index, search = self.config.index, self.config.search
        if search.device.startswith("cuda"):
            check_gpus(f"search.device: {search.device}", [search.device], "search.device")
        if index.factory != FLAT or search.parameters:  # Flat fits any vectors
            faiss_index.check_index(index.factory, index.metric, search.parameters, kept)

    @override
    def check_collection(self, collection: Collection) -> None:
        """Every shard of the index needs passages to be trained on."""
        passages, shards = len(collection.passages), self.config.index.shards
        if shards > passages:
            raise InputError(
                f"index.shards: {shards:,}, and the collection has {counted(passages, 'passage')}",
                allowed=f"1 to {passages:,}",
                fix="lower it",
            )
        super().check_collection(collection)
        index = self.config.index
        if index.factory == FLAT or self.config.data.chunks:  # chunks: how many is not known yet
            return
        from pipeline.search import faiss_index

        faiss_index.check_size(index.factory, index.metric, self._dimensions[1], passages, shards)

    @property
    def _dimensions(self) -> tuple[int | None, int | None]:
        """Of the vectors that the model gives and of those that are indexed, where its files say it."""
        whole = self.source.model.dimension if self.source.model else None
        return whole, self.source.form(self.settings).dimensions or whole

    @override
    def stored_sizes(self, passages: int, queries: int) -> dict[str, StoredSize]:
        """At least so many: passages that are cut give more vectors."""
        (stored, indexed), index = self._dimensions, self.config.index
        if not stored or not indexed:
            return {}
        counts = {"passages": passages, "queries": queries}
        sizes = {role: StoredSize(count * (4 * stored + TEXT_BYTES)) for role, count in counts.items()}
        from pipeline.search.index_bytes import index_size

        searched = index_size(index.factory, index.metric, indexed, self.settings.vector_precision)
        if self.settings.vector_precision in QUANTIZED:
            return {**sizes, "index": StoredSize(searched.total(passages), passage=searched.passage)}
        size = index_size(index.factory, index.metric, indexed).total(passages)  # Faiss keeps fp16 as fp32
        if index.factory == FLAT:
            smaller = "search.memory_mb, which searches the stored vectors instead"
        else:
            smaller = "index.shards, or an index.factory with smaller codes"
        return {**sizes, "index": StoredSize(size, size // index.shards, smaller, searched.passage)}

    @override
    def open_search(self, inputs: Inputs) -> Search:
        if self._in_shards:
            raise InputError(
                f"index.shards: {self.config.index.shards}, which workers search in parts",
                allowed="an index that one process holds",
                fix="set index.shards to 1",
            )
        from pipeline.search import exact, searchers

        config, ids = self.config, searched_ids(self.config, inputs)
        stored = inputs["index" if "index" in inputs else "passages"]
        stored = stored.file(0) if isinstance(stored, dense_search.StoredIndex) else stored
        searcher = searchers.open_searcher(config.index, config.search, stored)
        if "queries" in inputs:  # those of a run; others come one at a time
            vector_shards.check_counts(searcher.count, searcher.dimension, len(ids), inputs["queries"])
            if searcher.by_products:
                exact.prepare(inputs["queries"], searcher.count)

        def find(queries: Float32, chosen: Int64, k: int, bar: Bar) -> Ranking:
            return searcher.search(queries[chosen], k, ids, bar)

        def score(queries: Float32, query: int, chunks: Int64) -> Float32:
            assert isinstance(searcher, searchers.ExactSearcher)
            return searcher.score(queries[query : query + 1], chunks)

        exactly = score if isinstance(searcher, searchers.ExactSearcher) else None
        return search_by(config, inputs, find, exactly)

    @override
    def query_row(self, encoded: Any) -> Float32:
        form = self.source.form(self.settings)
        row = np.empty((1, form.dimensions or encoded.shape[1]), np.float32)
        vector_shards.apply_form(encoded, form, row, 0)
        return row

    @property
    def _in_shards(self) -> bool:
        """Whether there are several indexes, each of some passages."""
        return self.config.index.shards > 1 and self.settings.vector_precision not in QUANTIZED

    def _search(self, in_parts: bool, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        """Search the index, or the stored vectors, `in_parts` by an engine or in this process."""
        if in_parts:
            facts = dense_search.search_parts(self.config, inputs, draft, context)
        else:
            facts = search_here(self, inputs, draft, context)
        from pipeline.search.index_bytes import index_size

        index, precision = self.config.index, self.settings.vector_precision
        dimension = inputs["queries"].shape[1]
        size = index_size(index.factory, index.metric, dimension, precision)
        sizes = {"bytes": round(size.passage), "ids": size.ids, "codebooks": size.codebooks * index.shards}
        form = {"dimension": dimension, "precision": precision, "factory": index.factory}
        return {**facts, VectorsCost.key: {**form, **sizes}}
