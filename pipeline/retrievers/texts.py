"""Retrievers that read texts themselves: whole passages, or the chunks that passages are cut into first.

With `data.chunks`, a stage `chunks` comes first, and the stages that read passages read chunks instead. Their
search ranks the passages, here called documents, by the scores of their chunks (`search.aggregate`). `first`
needs no other scores than those of the first chunks, so no others are made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import TypeVar, override

from pipeline.config import ModelSettings, keyed_settings
from pipeline.core.records import Chunks, Ranking, Role, Texts
from pipeline.data.collection_files import CHUNK_BOUNDS, CHUNK_PLACES, CHUNK_TEXTS, TextsWriter, open_chunks
from pipeline.encoders.batching import Usage
from pipeline.retrievers.retriever import COLLECTION, Retriever, Search, open_ranking, save_ranking
from pipeline.retrievers.sections import Chunking
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage
from pipeline.storage.artifacts import Artifact, Draft
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.data.chunking import TokenSpans
    from pipeline.search.documents import Documents

QueryEncoder = Callable[[str, Usage], Any]
"""Turns the text of a query into its row; what that costs is added."""
Settings = TypeVar("Settings", bound=ModelSettings, covariant=True, default=ModelSettings)

CHUNKS = "chunks"
SCHEMAS = {CHUNKS: 2}
BATCH = 1024  # passages cut at once


@dataclass(frozen=True)
class Tokens:
    """What passages are cut by.

    Attributes:
        identity: JSON of all that shapes the tokens, for artifact keys.
    """

    identity: Facts
    load: Callable[[], TokenSpans]


class TextRetriever(Retriever[Settings], ABC):
    """A retriever that reads the texts of a collection."""

    @abstractmethod
    def tokens(self) -> Tokens:
        """What passages are cut by."""

    @override
    def plan(self) -> Plan:
        """With `chunks` first if passages are cut."""
        plan = super().plan()
        return {CHUNKS: self._chunk_stage(), **plan} if self.cuts else plan

    @override
    def report(self, artifacts: Mapping[str, Artifact], scores: Facts, stages: Sequence[Facts]) -> Facts:
        if self.config.data.chunks is None:
            return {}
        facts = artifacts[CHUNKS].facts
        return {
            Chunking.key: {
                **self.config.data.chunks.model_dump(mode="json"),
                "aggregate": self.config.search.aggregate,
                **{name: facts[name] for name in ("chunks", "cut")},
            }
        }

    @property
    def cuts(self) -> bool:
        """Whether passages are cut into chunks."""
        return self.config.data.chunks is not None

    def source_of(self, role: Role) -> str:
        """The stage whose texts are read: the chunks of passages that are cut, else the collection."""
        return CHUNKS if self.cuts and role == "passages" else COLLECTION

    def text_stage(
        self,
        role: Role,
        schema: int,
        settings: Facts,
        make: Callable[[Inputs, Draft, Context], Facts],
        opened: Callable[[Artifact], object],
    ) -> Stage:
        """A stage that reads the texts of a role, which are its ingredient `texts`."""
        source, made_of = self.source_of(role), {}
        if source == CHUNKS:
            made_of = {"texts": CHUNKS}
        else:
            texts = self.identity.passages if role == "passages" else self.identity.queries
            settings = {"texts": texts, **settings}
        return Stage(role, schema, (source,), made_of, settings, make, opened, grows_with=role)

    def texts_of(self, role: Role, inputs: Inputs) -> Texts:
        """The texts of a role."""
        if self.source_of(role) == CHUNKS:
            chunks: Chunks = inputs[CHUNKS]
            return chunks.texts
        texts: Texts = inputs[COLLECTION].passages if role == "passages" else inputs[COLLECTION].queries
        return texts

    def documents(self, inputs: Inputs) -> Documents | None:
        """The documents that a search ranks by their chunks; None where passages are whole."""
        if not self.cuts:
            return None
        from pipeline.search.documents import Documents

        return Documents.of(inputs[CHUNKS], self.config.search.aggregate)

    @abstractmethod
    def open_search(self, inputs: Inputs) -> Search:
        """Opens what the stage `search` searches; of its inputs, the queries are not needed."""

    @abstractmethod
    def encode_query(self, store: Store) -> QueryEncoder:
        """Loads what turns the text of one query into what the stage `queries` would open."""

    def search(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        """Search in this process, and save the ranking."""
        search, count = self.open_search(inputs), len(inputs[COLLECTION].queries)
        with context.progress("search", count, "queries") as bar, context.meter.working():
            ranking = search(inputs["queries"], bar)
        context.meter.count(count)
        return self.save_found(inputs, draft, ranking)

    def save_found(self, inputs: Inputs, draft: Draft, ranking: Ranking) -> Facts:
        """Save the best `top_k` passages that are not ignored, of those that `search_depth` finds."""
        from pipeline.metrics.evaluation import ignored_hits
        from pipeline.metrics.scoring import drop_hits

        collection, top_k = inputs[COLLECTION], self.config.search.top_k
        ranking = drop_hits(ranking, ignored_hits(collection, self.config.data.ignored), top_k)
        return save_ranking(draft, collection, ranking)

    def search_depth(self, inputs: Inputs) -> int:
        """How many passages a search has to find so that `top_k` of every query are left in `save_found`."""
        from pipeline.metrics.evaluation import ignored_hits

        ignored = ignored_hits(inputs[COLLECTION], self.config.data.ignored)
        return self.config.search.top_k + int(np.bincount(ignored.queries).max(initial=0))

    def search_stage(
        self,
        schema: int,
        searched: tuple[str, ...],
        make: Callable[[Inputs, Draft, Context], Facts],
        settings: Facts,
        index: str = "index",
    ) -> Stage:
        """The stage `search`.

        Args:
            schema: As of `Stage`.
            searched: The roles of what `make` reads besides the texts, whose ids decide ties.
            make: As of `Stage`.
            settings: What shapes the ranking besides the config's section and the aggregation of chunks.
            index: The role of what is searched, whose key is an ingredient beside that of the queries.
        """
        made_of = {"index": index, "queries": "queries"}
        settings |= keyed_settings(self.config.search, "search")
        settings |= keyed_settings(self.config.data, "search")
        if self.config.data.ignored == "negative_grades":
            settings["qrels"] = self.identity.qrels["qrels"]
        needs = (COLLECTION, *searched)
        if self.cuts:
            settings["aggregate"] = self.config.search.aggregate
            needs = (COLLECTION, CHUNKS, *searched)
        return Stage("search", schema, needs, made_of, settings, make, open_ranking, grows_with="product")

    def _chunk_stage(self) -> Stage:
        """Cuts the passages."""
        tokens = self.tokens()
        first_only = self.config.search.aggregate == "first"  # then no other chunks are made
        settings = {
            "passages": self.identity.passages,
            "tokens": tokens.identity,
            "first_only": first_only,
            **keyed_settings(self.config.data, CHUNKS),
        }
        make = partial(self._cut, tokens, first_only)
        return Stage(
            CHUNKS, SCHEMAS[CHUNKS], (COLLECTION,), {}, settings, make, open_chunks, exact_bytes=True
        )

    def _cut(self, tokens: Tokens, first_only: bool, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        import pyarrow as pa

        from pipeline.data.chunking import cut_texts

        settings, passages = self.config.data.chunks, inputs[COLLECTION].passages
        assert settings is not None
        spans = tokens.load()
        places, counts = array("q"), array("q")
        bar_of = context.progress("cut passages", len(passages), "passages")
        with draft.file(CHUNK_TEXTS) as path, TextsWriter(path) as writer, bar_of as bar:
            for start in range(0, len(passages), BATCH):
                ids, texts = (
                    column.slice(start, BATCH).to_pylist() for column in (passages.ids, passages.texts)
                )
                names, parts = [], []
                cuts = cut_texts(texts, spans, settings, first_only)
                for name, text, chunks in zip(ids, texts, cuts, strict=True):
                    names += [f"{name}#{number}" for number in range(len(chunks))]
                    parts += [text[begin:end] for begin, end in chunks]
                    places.extend(chain.from_iterable(chunks))
                    counts.append(len(chunks))
                writer.write(pa.array(names, pa.string()), pa.array(parts, pa.string()))
                bar.update(len(ids))
        per_passage = np.array(counts, np.int64)
        draft.save_array(CHUNK_PLACES, np.ascontiguousarray(np.array(places, np.int64).reshape(-1, 2).T))
        draft.save_array(CHUNK_BOUNDS, np.concatenate([[0], np.cumsum(per_passage)]))
        context.meter.count(len(passages))
        return {
            "passages": len(passages),
            "chunks": int(per_passage.sum()),
            "cut": int((per_passage > 1).sum()),
        }
