"""The `multivector` kind: a vector for each token of a text, searched exactly by MaxSim or by an index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pipeline.config import PLAID, MultiVectorSettings, PlaidSettings, SearchConfig, keyed_settings
from pipeline.core.errors import InputError
from pipeline.core.records import Embeddings, Ragged, TokenEmbeddings
from pipeline.encoders import Model
from pipeline.models.model import Role
from pipeline.retrievers import plaid_index
from pipeline.retrievers.assessment import EXACT, Assessment, against_exact, exact_search
from pipeline.retrievers.encoding import EncodingRetriever
from pipeline.retrievers.rows import RowFormat
from pipeline.retrievers.shared import open_ranking, save_ranking
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, Plan, Stage
from pipeline.retrievers.stored_index import StoredIndex
from pipeline.storage import ragged_shards, vector_forms, vector_shards
from pipeline.storage.artifacts import Draft

SCHEMAS = {"passages": 1, "queries": 1, "search": 1}
CHECKED = 1 << 16  # token vectors checked at once


class MultiVector(EncodingRetriever[MultiVectorSettings]):
    """See `pipeline.retrievers.retriever.Retriever`."""

    def stages(self) -> Plan:
        """See `Retriever.stages`; there is no index if the stored vectors are searched themselves.

        With `exact` if an index is compared with exact search.
        """
        search = self.config.search
        plan: Plan = {
            "passages": self._vectors("passages", halves=self.settings.token_precision == "fp16"),
            "queries": self._vectors("queries", halves=False),
        }
        if not self._indexed:
            return {**plan, "search": self._ranking(search)}
        plan |= {"index": self._index(), "search": self._ranking_by_index(search)}
        if self._measured:
            plan[EXACT] = replace(self._ranking(exact_search(search)), listed=False)
        return plan

    def assessments(self) -> list[Assessment]:
        """See `Retriever.assessments`: what the index loses."""
        return [against_exact(self.ranking)] if self._measured else []

    def check(self, search_is_cached: bool) -> None:
        """See `Retriever.check`."""
        super().check(search_is_cached)
        if self._indexed and not search_is_cached:
            plaid_index.check_installed()

    @property
    def _indexed(self) -> bool:
        """Whether an index is searched, and not the stored vectors."""
        return self.config.index.factory == PLAID

    @property
    def _measured(self) -> bool:
        """Whether the index is compared with exact search."""
        return self._indexed and self.config.search.against_exact

    @property
    def _mean(self) -> bool:
        """Whether a score is the mean over a query's tokens, not the sum."""
        declared = isinstance(self.model, Model) and self.model.mean_over_tokens
        return declared if self.settings.score is None else self.settings.score == "mean"

    def _vectors(self, role: Role, halves: bool) -> Stage:
        """Encodes the passages or the queries, and keeps their token vectors, as float16 if `halves`."""

        def save(draft: Draft, start: int, rows: Ragged, ids: list[str]) -> None:
            check_token_vectors(rows, ids)
            vectors = vector_forms.to_halves(rows.columns[0], start) if halves else rows.columns[0]
            ragged_shards.save_rows(draft, start, Ragged(rows.ends, (vectors,)))

        kept = RowFormat(
            save, ragged_shards.open_rows, ragged_shards.read_some_rows, ragged_shards.join_and_order
        )
        return self.encode_stage(role, SCHEMAS[role], kept)

    def _index(self) -> Stage:
        """Makes the index. Its bytes were the same wherever it was tried; fast-plaid does not promise it."""
        settings = self.config.index.plaid or PlaidSettings()

        def ingredients(keys: Keys) -> dict[str, Any]:
            made_by = {plaid_index.PACKAGE: plaid_index.installed_version()}
            return {"passages": keys["passages"], **made_by, **keyed_settings(settings, "index")}

        def make(inputs: Inputs, draft: Draft, context: Context) -> Facts:
            return plaid_index.build(settings, token_embeddings(inputs["passages"]), draft, context)

        return Stage("index", plaid_index.SCHEMAS["index"], ("passages",), ingredients, make, StoredIndex)

    def _ranking_by_index(self, search: SearchConfig) -> Stage:
        """Searches the index, and scores its best hits by the stored vectors if that is asked for."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            made_of = {"index": keys["index"], "queries": keys["queries"], "mean": self._mean}
            measured = {"measured": True} if self._measured else {}
            return {**made_of, **measured, **self.aggregation, **keyed_settings(search, "search")}

        def make(inputs: Inputs, draft: Draft, context: Context) -> Facts:
            passages = token_embeddings(inputs["passages"]) if search.rescore else None
            return plaid_index.search(
                search,
                self._mean,
                self._measured,
                inputs["data"],
                inputs["index"],
                token_embeddings(inputs["queries"]),
                passages,
                self.documents(inputs),
                draft,
                context,
            )

        rescored = ("passages",) if search.rescore else ()
        needs = (*self.searched, "index", "queries", *rescored)
        return Stage("search", plaid_index.SCHEMAS["search"], needs, ingredients, make, open_ranking)

    def _ranking(self, search: SearchConfig) -> Stage:
        """Searches the stored vectors."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            made_of = {"passages": keys["passages"], "queries": keys["queries"], "mean": self._mean}
            return {**made_of, **self.aggregation, **keyed_settings(search, "search")}

        needs = (*self.searched, "passages", "queries")
        make = partial(self._search, search)
        return Stage("search", SCHEMAS["search"], needs, ingredients, make, open_ranking)

    def _search(self, search: SearchConfig, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        from pipeline.search import maxsim

        collection = inputs["data"]
        passages, queries = (token_embeddings(inputs[role]) for role in ("passages", "queries"))
        with context.progress("search", len(queries), "queries") as bar, context.meter.working():
            ranking = maxsim.maxsim_search(
                passages,
                queries,
                search.top_k,
                collection.passages.ids,
                bar,
                mean=self._mean,
                memory_mb=search.memory_mb,
                documents=self.documents(inputs),
            )
        context.meter.count(len(queries))
        return save_ranking(draft, collection, ranking)


def check_token_vectors(rows: Ragged, ids: list[str]) -> None:
    """Refuse texts, by their `ids`, without vectors, and vectors as `vector_shards.check_vectors` does."""
    empty = rows.lengths == 0
    if empty.any():
        raise InputError(
            f"'{ids[int(np.argmax(empty))]}' has no token vector; "
            f"{int(empty.sum())} of {len(ids)} texts affected",
            allowed="one vector at least for each text",
            fix="check the model's tokenizer and skip list; make vectors from a file again",
        )
    vectors, lengths = rows.columns[0], rows.lengths
    of_tokens: Iterator[str] = (name for name, n in zip(ids, lengths, strict=True) for _ in range(n))
    for start in range(0, len(vectors), CHECKED):
        part = vectors[start : start + CHECKED]
        vector_shards.check_vectors(part, (next(of_tokens) for _ in range(len(part))), normalized=False)


def token_embeddings(shards: Sequence[Ragged]) -> TokenEmbeddings:
    """The token vectors of all shards, which stay where they are."""
    arrays = tuple(shard.columns[0] for shard in shards)
    widths = {array.shape[1] for array in arrays}
    if len(widths) > 1:
        raise InputError(
            f"stored token vectors have {' and '.join(map(str, sorted(widths)))} dimensions",
            allowed="the same number for all",
            fix="check the model, and run again with --fresh",
        )
    offsets = np.cumsum([0, *map(len, arrays)])
    ends = [shard.ends + offset for shard, offset in zip(shards, offsets, strict=False)]
    return TokenEmbeddings(Embeddings(arrays), np.concatenate(ends))
