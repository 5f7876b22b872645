"""The `multivector` kind: a vector for each token of a text, searched exactly by MaxSim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from typing_extensions import override

from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.records import Embeddings, Float32, Int64, RaggedRows, Ranking, TokenEmbeddings
from pipeline.retrievers.encoding import EncodingRetriever
from pipeline.retrievers.retriever import Search
from pipeline.retrievers.rows import RaggedFormat
from pipeline.retrievers.stage import Inputs, Plan
from pipeline.retrievers.texts import search, search_stage, text_stages, texts_of
from pipeline.storage import ragged_shards, vector_shards
from pipeline.storage.artifacts import Draft

SCHEMAS = {"passages": 2, "queries": 2, "search": 1}
CHECKED = 1 << 16  # token vectors checked at once


@dataclass(frozen=True)
class TokenVectorFormat(RaggedFormat):
    """The token vectors of each text, one at least, as float16 if `halves`."""

    halves: bool = False

    @override
    def save(self, draft: Draft, start: int, rows: RaggedRows, ids: list[str]) -> None:
        empty, vectors = rows.lengths == 0, rows.columns[0]
        if empty.any():
            raise InputError(
                f"'{ids[int(np.argmax(empty))]}' has no token vector; "
                f"{int(empty.sum())} of {len(ids)} texts affected",
                allowed="one vector at least for each text",
                fix="check the model's tokenizer and skip list; make vectors from a file again",
            )
        of_tokens: Iterator[str] = (name for name, n in zip(ids, rows.lengths, strict=True) for _ in range(n))
        for first in range(0, len(vectors), CHECKED):
            part = vectors[first : first + CHECKED]
            vector_shards.check_vectors(part, (next(of_tokens) for _ in range(len(part))), normalized=False)
        vectors = vector_shards.to_halves(vectors, start) if self.halves else vectors
        super().save(draft, start, RaggedRows(rows.ends, (vectors,)), ids)


class MultiVector(EncodingRetriever):
    """Vectors of tokens, searched by MaxSim."""

    @override
    def stages(self) -> Plan:
        """There is no index: the stored vectors are searched themselves."""
        halves, searched = self.settings.token_precision == "fp16", ("passages", "queries")
        settings, make = {"mean": self._mean}, partial(search, self)
        formats = TokenVectorFormat(halves=halves), TokenVectorFormat(held=True)
        return {
            **text_stages(self, self.source, SCHEMAS, self._encode, *formats),
            "search": search_stage(self, SCHEMAS["search"], searched, make, settings, index="passages"),
        }

    @property
    def _mean(self) -> bool:
        """Whether a score is the mean over a query's tokens, not the sum."""
        model = self.source.model
        declared = model is not None and model.mean_over_tokens
        return declared if self.settings.score is None else self.settings.score == "mean"

    @override
    def open_search(self, inputs: Inputs) -> Search:
        from pipeline.search.maxsim import MaxSimScorer, maxsim_search

        memory_mb, ids = self.config.search.memory_mb, texts_of("passages", inputs).ids
        passages, mean = token_embeddings(inputs["passages"]), self._mean

        def find(queries: RaggedRows, k: int, bar: Bar) -> Ranking:
            tokens = token_embeddings([queries])
            return maxsim_search(passages, tokens, k, ids, bar, mean=mean, memory_mb=memory_mb)

        def score(query: RaggedRows, chunks: Int64) -> Float32:
            bounds = np.concatenate([[0], query.ends])
            return MaxSimScorer(passages, query.columns[0], bounds, mean)(chunks, np.zeros_like(chunks))

        return Search(find, ragged_shards.take_rows, score)


def token_embeddings(shards: Sequence[RaggedRows]) -> TokenEmbeddings:
    """The token vectors of all shards, which stay where they are."""
    arrays = tuple(shard.columns[0] for shard in shards)
    vector_shards.check_widths(arrays)
    return TokenEmbeddings(Embeddings(arrays), ragged_shards.bounds_of(shards)[1:])
