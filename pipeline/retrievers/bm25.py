"""The `bm25` kind: no model and no vectors; passages are found by the words that they share with a query."""

from __future__ import annotations

import os
import time
from functools import partial

import numpy as np
from typing_extensions import override

from pipeline.config import keyed_settings
from pipeline.config.model import Bm25Settings
from pipeline.core.display import Bar, silent
from pipeline.core.records import Int64, Ranking, Role, Texts
from pipeline.encoders.batching import Usage
from pipeline.retrievers.retriever import Search
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage
from pipeline.retrievers.texts import QueryEncoder, TextRetriever, Tokens
from pipeline.search import bm25_index
from pipeline.search.bm25_index import Tokenization, TokenizedTexts
from pipeline.storage.artifacts import Draft
from pipeline.storage.store import Store

SCHEMAS = {"passages": 4, "queries": 4, "index": 1, "search": 3}


class Bm25(TextRetriever[Bm25Settings]):
    """Words, and their postings."""

    @property
    def _tokenization(self) -> Tokenization:
        return Tokenization(self.settings.stop_words, self.settings.stemmer)

    @override
    def tokens(self) -> Tokens:
        from pipeline.data.chunking import word_spans

        return Tokens({"words": 1}, lambda: word_spans)

    @override
    def stages(self) -> Plan:
        return {
            "passages": self._words("passages"),
            "queries": self._words("queries"),
            "index": self._postings(),
            "search": self.search_stage(SCHEMAS["search"], ("index", "queries"), self.search, {}),
        }

    def _words(self, role: Role) -> Stage:
        """Cuts the passages or the queries into words."""
        settings = {"model": self._tokenization.recipe(), **keyed_settings(self.settings, role)}
        make = partial(self._tokenize, role)
        return self.text_stage(role, SCHEMAS[role], settings, make, bm25_index.open_tokenized)

    def _tokenize(self, role: Role, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        texts = self.texts_of(role, inputs)
        bar_of = context.progress(f"tokenize {role}", len(texts), "texts")
        with bar_of as bar, context.meter.working("bm25s.tokenization", "Stemmer"):
            words = self._tokenization.tokenize(texts, bar)
        bm25_index.save_tokenized(draft, words)
        context.meter.count(len(texts))
        return {"rows": len(texts), "words": len(words.ids), "vocabulary": len(words.vocabulary)}

    def _postings(self) -> Stage:
        """Builds the postings of the passages' words."""
        made_of, settings = {"passages": "passages"}, keyed_settings(self.settings, "index")
        opened = bm25_index.open_postings
        return Stage("index", SCHEMAS["index"], ("passages",), made_of, settings, self._index, opened)

    def _index(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        model, passages = self.settings, inputs["passages"]
        bar_of = context.progress("index", len(passages), "passages")
        with bar_of as bar, context.meter.working("bm25s"):
            index = bm25_index.build(passages, model.k1, model.b)
            bar.update(len(passages))
        with draft.scratch() as aside:
            index.save(aside, show_progress=False)
            for file in sorted(aside.iterdir()):
                with draft.file(file.name) as path:
                    os.replace(file, path)
        context.meter.count(len(passages))
        return {"rows": len(passages), "vocabulary": len(passages.vocabulary)}

    @override
    def open_search(self, inputs: Inputs) -> Search:
        from pipeline.core.order import descending_id_rank
        from pipeline.search.documents import rank

        index, top_k, documents = inputs["index"], self.search_depth(inputs), self.documents(inputs)
        ids = inputs["data"].passages.ids
        # equal chunks decide nothing
        order = descending_id_rank(ids) if documents is None else np.arange(documents.chunks)

        def search(queries: TokenizedTexts, bar: Bar) -> Ranking:
            def find(chosen: Int64, k: int, bar: Bar) -> Ranking:
                return bm25_index.search(index, queries.take(chosen), k, order, bar)

            return rank(find, len(queries), documents, top_k, ids, bar)

        return search

    @override
    def encode_query(self, store: Store) -> QueryEncoder:
        import pyarrow as pa

        def encode(text: str, usage: Usage) -> TokenizedTexts:
            started = time.perf_counter()
            alone = Texts(*(pa.chunked_array([[value]], pa.string()) for value in ("0", text)))
            with silent("", None, "") as bar:
                words = self._tokenization.tokenize(alone, bar)
            usage.tokenize_seconds += time.perf_counter() - started
            return words

        return encode
