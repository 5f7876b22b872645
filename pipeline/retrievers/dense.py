"""The `dense` kind: one vector for each text, an index of the passages' vectors, and a search of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from pipeline.config import FLAT, keyed_settings
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float32, VectorForm
from pipeline.engines import opening
from pipeline.retrievers import dense_search
from pipeline.retrievers.costs import VectorsCost
from pipeline.retrievers.encoding import EncodingRetriever
from pipeline.retrievers.retriever import Search
from pipeline.retrievers.rows import VectorFormat
from pipeline.retrievers.sections import ApproximateIndex
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage, StoredSize
from pipeline.retrievers.texts import search_here, search_stage, with_chunks
from pipeline.storage import vector_forms
from pipeline.storage.artifacts import Artifact, Draft

TEXT_BYTES = 20  # kept beside the vector of a text: its hash and its number of tokens
SCHEMAS = {"passages": 6, "queries": 6, "index": 2, "search": 5}


class Dense(EncodingRetriever):
    """One vector for each text, and a Faiss index or a quantized form of the passages' vectors."""

    @override
    def stages(self) -> Plan:
        config = self.config
        form = {"truncate_dim": self._form.dimensions, **keyed_settings(self.settings, "index")}
        index = {"form": form, **keyed_settings(config.index, "index")}
        searched = ("passages" if self._by_vectors else "index", "queries")
        plan = {
            "passages": self.encode_stage("passages", SCHEMAS["passages"], VectorFormat(self._form)),
            "queries": self.encode_stage(
                "queries", SCHEMAS["queries"], VectorFormat(self._query_form, held=True)
            ),
            "index": Stage(
                "index",
                SCHEMAS["index"],
                needs=("passages",),
                made_of={"passages": "passages"},
                settings=index,
                make=self._build,
                open=dense_search.open_quantized if self.settings.is_quantized else dense_search.StoredIndex,
            ),
            "search": search_stage(self, SCHEMAS["search"], searched, self._search, {}),
        }
        return with_chunks(self, self.source.model, plan)

    @override
    def report(self, artifacts: Mapping[str, Artifact], scores: Facts, stages: Sequence[Facts]) -> Facts:
        facts, config = artifacts[self.ranking].facts, self.config
        sections = {key: facts[key] for key in (VectorsCost.key,) if key in facts}
        if config.index.factory != FLAT:
            settings = config.index.model_dump(mode="json")
            sections[ApproximateIndex.key] = {**settings, "parameters": config.search.parameters}
        return {**super().report(artifacts, scores, stages), **sections}

    @override
    def check(self) -> None:
        super().check()
        dimensions = self._form.dimensions
        if dimensions and self._model_dimension:
            vector_forms.check_dimensions(dimensions, self._model_dimension)
        from pipeline.search import faiss_index

        index, search = self.config.index, self.config.search
        opening.check_gpus(f"search.device: {search.device}", [search.device], "search.device")
        if index.factory != FLAT or search.parameters:  # Flat fits any vectors
            faiss_index.check_index(index.factory, index.metric, search.parameters, self._known_dimension)

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

        faiss_index.check_size(index.factory, index.metric, self._known_dimension, passages, shards)

    @property
    def _model_dimension(self) -> int | None:
        """The dimension of the vectors that the model gives, where its files say it."""
        return self.source.model.dimension if self.source.model else None

    @property
    def _known_dimension(self) -> int | None:
        """The dimension of the vectors that are indexed, where it is known."""
        return self._form.dimensions or self._model_dimension

    @cached_property
    def _query_form(self) -> VectorForm:
        """What is made of the queries' vectors."""
        return self.source.form(self.settings)

    @cached_property
    def _form(self) -> VectorForm:
        """What is made of the passages' vectors."""
        return replace(self._query_form, halves=self.settings.vector_precision == "fp16")

    @override
    def stored_sizes(self, passages: int, queries: int) -> dict[str, StoredSize]:
        """At least so many: passages that are cut give more vectors."""
        stored, indexed, index = self._model_dimension, self._known_dimension, self.config.index
        if not stored or not indexed:
            return {}
        counts = {"passages": passages, "queries": queries}
        sizes = {role: StoredSize(count * (4 * stored + TEXT_BYTES)) for role, count in counts.items()}
        from pipeline.search.index_bytes import index_size

        searched = index_size(index.factory, index.metric, indexed, self.settings.vector_precision)
        if self.settings.is_quantized:
            return {**sizes, "index": StoredSize(searched.total(passages), passage=searched.passage)}
        size = index_size(index.factory, index.metric, indexed).total(passages)  # Faiss keeps fp16 as fp32
        if index.factory == FLAT:
            smaller = "search.memory_mb, which searches the stored vectors instead"
        else:
            smaller = "index.shards, or an index.factory with smaller codes"
        return {**sizes, "index": StoredSize(size, size // index.shards, smaller, searched.passage)}

    def _build(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        """Build the index of the passages' vectors; finished shards of an interrupted run are kept."""
        if self.settings.is_quantized:
            return dense_search.build_quantized(self.settings.vector_precision, inputs, draft, context)
        return dense_search.build_index(self.config.index, inputs, draft, context)

    @override
    def open_search(self, inputs: Inputs) -> Search:
        if self._in_shards:
            raise InputError(
                f"index.shards: {self.config.index.shards}, which workers search in parts",
                allowed="an index that one process holds",
                fix="set index.shards to 1",
            )
        return dense_search.open_search(self.config, inputs)

    @override
    def query_row(self, encoded: Any) -> Float32:
        row = np.empty((1, self._query_form.dimensions or encoded.shape[1]), np.float32)
        vector_forms.apply_form(encoded, self._query_form, row, 0)
        return row

    @property
    def _in_shards(self) -> bool:
        """Whether there are several indexes, each of some passages."""
        return self.config.index.shards > 1 and not self.settings.is_quantized

    @property
    def _distributed(self) -> bool:
        """Whether many workers search: each a part of the stored vectors, if the search is exact."""
        return self.config.engine.kind != "local" and not self.config.data.chunks

    @property
    def _by_vectors(self) -> bool:
        """Whether the stored vectors are searched: where memory is limited, or workers share them."""
        index, search = self.config.index, self.config.search
        shared = self._distributed and index.factory == FLAT
        return (search.memory_mb is not None or shared) and not self.settings.is_quantized

    def _search(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        """Search the index, or the stored vectors."""
        if self._in_shards or (self._distributed and self._by_vectors):
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
