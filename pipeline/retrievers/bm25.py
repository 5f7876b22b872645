"""The `bm25` kind: no model and no vectors; passages are found by the words that they share with a query."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from pipeline.config import keyed_settings
from pipeline.core.order import descending_id_rank
from pipeline.models.model import Role
from pipeline.retrievers.retriever import Retriever
from pipeline.retrievers.shared import open_ranking, save_ranking
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, Plan, Stage
from pipeline.search import postings, words
from pipeline.search.words import Tokenization
from pipeline.storage.artifacts import Artifact, Draft

SCHEMAS = {"passages": 4, "queries": 4, "index": 1, "search": 3}


class Bm25(Retriever):
    """See `pipeline.retrievers.retriever.Retriever`."""

    @property
    def tokenization(self) -> Tokenization:
        """How texts are cut into words."""
        return Tokenization(self.config.model.stop_words, self.config.model.stemmer)

    def stages(self) -> Plan:
        """See `Retriever.stages`."""
        return {
            "passages": self._words("passages"),
            "queries": self._words("queries"),
            "index": self._postings(),
            "search": self._ranking(),
        }

    def _words(self, role: Role) -> Stage:
        """Cuts the passages or the queries into words."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            texts = self.identity.passages if role == "passages" else self.identity.queries
            settings = keyed_settings(self.config.model, role)
            return {"texts": texts, "model": self.tokenization.recipe(), **settings}

        make = partial(self._tokenize, role)
        return Stage(role, SCHEMAS[role], ("data",), ingredients, make, words.open_words)

    def _tokenize(self, role: Role, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        texts = inputs["data"].passages if role == "passages" else inputs["data"].queries
        bar_of = context.progress(f"tokenize {role}", len(texts), "texts")
        with context.meter.working(), bar_of as bar:
            found = self.tokenization.words(texts, bar)
        words.save_words(draft, found)
        context.meter.count(len(texts))
        return {"rows": len(texts), "words": len(found.ids), "vocabulary": len(found.vocabulary)}

    def _postings(self) -> Stage:
        """Builds the postings of the passages' words."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            return {"passages": keys["passages"], **keyed_settings(self.config.model, "index")}

        def opened(artifact: Artifact) -> Any:
            return postings.open_postings(artifact.folder)

        return Stage("index", SCHEMAS["index"], ("passages",), ingredients, self._index, opened)

    def _index(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        model, passages = self.config.model, inputs["passages"]
        with context.meter.working(), context.progress("index", len(passages), "passages") as bar:
            index = postings.build(passages, model.k1, model.b)
            bar.update(len(passages))
        with draft.aside() as aside:
            for name in postings.save(index, aside):
                with draft.file(name) as path:
                    os.replace(aside / name, path)
        context.meter.count(len(passages))
        return {"rows": len(passages), "vocabulary": len(passages.vocabulary)}

    def _ranking(self) -> Stage:
        """Searches the postings for every query."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            made_of = {"index": keys["index"], "queries": keys["queries"]}
            return {**made_of, **keyed_settings(self.config.search, "search")}

        needs = ("data", "index", "queries")
        return Stage("search", SCHEMAS["search"], needs, ingredients, self._search, open_ranking)

    def _search(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        collection, queries = inputs["data"], inputs["queries"]
        id_rank = descending_id_rank(collection.passages.ids)
        with context.meter.working(), context.progress("search", len(queries), "queries") as bar:
            ranking = postings.search(inputs["index"], queries, self.config.search.top_k, id_rank, bar)
        context.meter.count(len(queries))
        return save_ranking(draft, collection, ranking)
