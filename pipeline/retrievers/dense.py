"""The `dense` kind: one vector for each text, an index of the passages' vectors, and a search of it."""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from pipeline.config import FLAT, QUANTIZED, keyed_settings
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float32
from pipeline.engines.engine import check_gpus
from pipeline.retrievers import dense_search
from pipeline.retrievers.encoding import EncodingRetriever
from pipeline.retrievers.retriever import Search
from pipeline.retrievers.rows import VectorFormat
from pipeline.retrievers.stage import Inputs, Plan, Stage, StoredSize
from pipeline.retrievers.texts import search_stage, text_stages, texts_of
from pipeline.storage import vector_shards

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
        quantized = settings.vector_precision in QUANTIZED
        if quantized:
            build = partial(dense_search.build_quantized, settings.vector_precision)
        # the stored vectors are searched where memory is limited, or workers share them
        distributed = config.engine.kind != "local" and not config.data.chunks
        shared = distributed and config.index.factory == FLAT
        by_vectors = (config.search.memory_mb is not None or shared) and not quantized
        in_parts = config.index.shards > 1 or (distributed and by_vectors)
        search = partial(dense_search.search, self, in_parts)
        searched = ("passages" if by_vectors else "index", "queries")
        formats = VectorFormat(stored), VectorFormat(form, held=True)
        return {
            **text_stages(self, self.source, SCHEMAS, self._encode, *formats),
            "index": Stage(
                "index",
                SCHEMAS["index"],
                needs=("passages",),
                made_of={"passages": "passages"},
                settings={"form": indexed, **keyed_settings(config.index, "index")},
                make=build,
                open=dense_search.open_quantized if quantized else dense_search.StoredIndex,
            ),
            "search": search_stage(self, SCHEMAS["search"], searched, search, {}),
        }

    @override
    def check(self) -> None:
        model = self.source.model
        if model and model.dimension and model.truncate_dim:
            vector_shards.check_dimensions(model.truncate_dim, model.dimension)
        index, search = self.config.index, self.config.search
        check_gpus(f"search.device: {search.device}", [search.device], "search.device")
        if index.factory != FLAT or search.parameters:  # Flat fits any vectors
            from pipeline.search.faiss_index import check_index

            check_index(index.factory, index.metric, search.parameters, self._dimensions[1])

    @override
    def check_collection(self, collection: Collection) -> None:
        """Every shard of the index needs passages to be trained on."""
        index, plain = self.config.index, self.config.index.factory == FLAT and self.config.index.shards == 1
        if plain or self.config.data.chunks:  # chunks: how many is not known yet
            return
        from pipeline.search.faiss_index import check_size

        check_size(index.factory, index.metric, self._dimensions[1], len(collection.passages), index.shards)

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
        from pipeline.search.faiss_index import index_size

        precision = self.settings.vector_precision
        searched = index_size(index.factory, index.metric, indexed, precision)
        # Faiss keeps fp16 as fp32
        held = index_size(index.factory, index.metric, indexed) if precision == "fp16" else searched
        size = round(passages * (held.passage + held.ids) + held.codebooks)
        if precision in QUANTIZED:
            return {**sizes, "index": StoredSize(size, passage=searched.passage)}
        if index.factory == FLAT:
            smaller = "search.memory_mb, which searches the stored vectors instead"
        else:
            smaller = "index.shards, or an index.factory with smaller codes"
        return {**sizes, "index": StoredSize(size, size // index.shards, smaller, searched.passage)}

    @override
    def open_search(self, inputs: Inputs) -> Search:
        if self.config.index.shards > 1:
            raise InputError(
                f"index.shards: {self.config.index.shards}, which workers search in parts",
                allowed="an index that one process holds",
                fix="set index.shards to 1",
            )
        from pipeline.search.exact import ExactSearcher
        from pipeline.search.faiss_index import open_searcher

        config, ids = self.config, texts_of("passages", inputs).ids
        stored = inputs["index" if "index" in inputs else "passages"]
        if isinstance(stored, dense_search.StoredIndex):
            stored = stored.artifact.folder / dense_search.INDEX
        queries = inputs.get("queries")  # those of a run; others come one at a time
        searcher = open_searcher(config.index, config.search, stored, ids, queries)
        score = searcher.score if isinstance(searcher, ExactSearcher) else None
        return Search(searcher.search, operator.getitem, score)

    @override
    def query_row(self, encoded: Any) -> Float32:
        form = self.source.form(self.settings)
        row = np.empty((1, form.dimensions or encoded.shape[1]), np.float32)
        vector_shards.apply_form(encoded, form, row, 0)
        return row
