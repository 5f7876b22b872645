"""The `bm25` kind: no model and no vectors; passages are found by the words that they share with a query."""

from __future__ import annotations

import os
import time
from functools import partial

from typing_extensions import override

from pipeline.config import keyed_settings
from pipeline.config.model import Bm25Settings
from pipeline.core.display import Bar, silent
from pipeline.core.records import Ranking, Role, Texts
from pipeline.encoders.batching import Usage
from pipeline.retrievers.retriever import QueryEncoder, Retriever, Search
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage
from pipeline.retrievers.texts import (
    search,
    search_stage,
    text_stages,
    texts_of,
    tie_order,
)
from pipeline.search import bm25_index
from pipeline.search.bm25_index import Tokenization, TokenizedTexts
from pipeline.storage.artifacts import Draft
from pipeline.storage.store import Store

SCHEMAS = {"passages": 4, "queries": 4, "index": 1, "search": 3}


class Bm25(Retriever[Bm25Settings]):
    """Words, and their postings."""

    @override
    def stages(self) -> Plan:
        words = Tokenization(self.settings.stop_words, self.settings.stemmer)
        plan = text_stages(self, words, SCHEMAS, self._tokenize, words, words)
        plan["index"] = Stage(
            "index",
            SCHEMAS["index"],
            needs=("passages",),
            made_of={"passages": "passages"},
            settings=keyed_settings(self.settings, "index"),
            make=self._index,
            open=bm25_index.open_postings,
        )
        make = partial(search, self)
        plan["search"] = search_stage(self, SCHEMAS["search"], ("index", "queries"), make, {})
        return plan

    def _tokenize(
        self, role: Role, tokenization: Tokenization, inputs: Inputs, draft: Draft, context: Context
    ) -> Facts:
        texts = texts_of(role, inputs)
        bar_of = context.progress(f"tokenize {role}", len(texts), "texts")
        with bar_of as bar, context.meter.working("bm25s.tokenization", "Stemmer"):
            words = tokenization.tokenize(texts, bar)
        tokenization.save(draft, words)
        context.meter.items = len(texts)
        return {"rows": len(texts), "words": len(words.ids), "vocabulary": len(words.vocabulary)}

    def _index(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        """Build the postings of the passages' words."""
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
        context.meter.items = len(passages)
        return {"rows": len(passages), "vocabulary": len(passages.vocabulary)}

    @override
    def open_search(self, inputs: Inputs) -> Search:
        index, order = inputs["index"], tie_order(self.config, inputs)

        def find(queries: TokenizedTexts, k: int, bar: Bar) -> Ranking:
            return bm25_index.search(index, queries, k, order, bar)

        return Search(find, TokenizedTexts.take)

    @override
    def encode_query(self, store: Store) -> QueryEncoder:
        import pyarrow as pa

        tokenization = Tokenization(self.settings.stop_words, self.settings.stemmer)

        def encode(text: str, usage: Usage) -> TokenizedTexts:
            started = time.perf_counter()
            alone = Texts(*(pa.chunked_array([[value]], pa.string()) for value in ("0", text)))
            with silent("", None, "") as bar:
                words = tokenization.tokenize(alone, bar)
            usage.tokenize_seconds += time.perf_counter() - started
            return words

        return encode
