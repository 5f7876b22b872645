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
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import TypeVar, override

from pipeline.config import ModelSettings, keyed_settings
from pipeline.core.records import Chunks, JsonObject, Texts
from pipeline.data.collection_files import (
    CHUNK_BOUNDS,
    CHUNK_PLACES,
    CHUNK_TEXTS,
    TextsWriter,
    open_chunks,
)
from pipeline.models.model import Role
from pipeline.retrievers.retriever import COLLECTION, Retriever, open_ranking
from pipeline.retrievers.sections import Chunking
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, Plan, Stage, stage_of
from pipeline.storage.artifacts import Artifact, Draft

if TYPE_CHECKING:
    from pipeline.data.chunking import TokenSpans
    from pipeline.search.candidates import Documents

Settings = TypeVar("Settings", bound=ModelSettings, covariant=True, default=ModelSettings)

CHUNKS = "chunks"
SCHEMAS = {CHUNKS: 1}
BATCH = 1024  # passages cut at once


@dataclass(frozen=True)
class Tokens:
    """What passages are cut by.

    Attributes:
        identity: JSON of all that shapes the tokens, for artifact keys.
        load: Loads what finds them.
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

    @property
    def searched(self) -> tuple[str, ...]:
        """The stages that a search needs besides what it searches."""
        return (COLLECTION, CHUNKS) if self.cuts else (COLLECTION,)

    def texts_key(self, role: Role, keys: Keys) -> JsonObject:
        """What identifies the texts of a role in artifact keys."""
        if self.source_of(role) == CHUNKS:
            return {CHUNKS: keys[CHUNKS]}
        return self.identity.passages if role == "passages" else self.identity.queries

    def texts_of(self, role: Role, inputs: Inputs) -> Texts:
        """The texts of a role."""
        if self.source_of(role) == CHUNKS:
            chunks: Chunks = inputs[CHUNKS]
            return chunks.texts
        texts: Texts = inputs[COLLECTION].passages if role == "passages" else inputs[COLLECTION].queries
        return texts

    @property
    def aggregation(self) -> Facts:
        """How documents are scored, in artifact keys; nothing where passages are whole."""
        return {"aggregate": self.config.search.aggregate} if self.cuts else {}

    def documents(self, inputs: Inputs) -> Documents | None:
        """The documents that a search ranks by their chunks; None where passages are whole."""
        if not self.cuts:
            return None
        from pipeline.search.candidates import Documents

        return Documents.of(inputs[CHUNKS], self.config.search.aggregate)

    def search_stage(
        self,
        schema: int,
        made_of: tuple[str, ...],
        make: Callable[[Inputs, Draft, Context], Facts],
        needs: tuple[str, ...] | None = None,
        **more: object,
    ) -> Stage:
        """The stage `search`; arguments as of `stage_of`, and it needs the texts whose ids decide ties."""
        read = (*self.searched, *(needs or made_of))
        more |= self.aggregation
        return stage_of("search", schema, made_of, self.config.search, make, open_ranking, needs=read, **more)

    def _chunk_stage(self) -> Stage:
        """Cuts the passages."""
        tokens = self.tokens()
        first_only = self.config.search.aggregate == "first"  # then no other chunks are made

        def ingredients(keys: Keys) -> Facts:
            made_of = {"passages": self.identity.passages, "tokens": tokens.identity}
            return {**made_of, "first_only": first_only, **keyed_settings(self.config.data, CHUNKS)}

        def make(inputs: Inputs, draft: Draft, context: Context) -> Facts:
            return self._cut(tokens, first_only, inputs[COLLECTION].passages, draft, context)

        needs = (COLLECTION,)
        return Stage(CHUNKS, SCHEMAS[CHUNKS], needs, ingredients, make, open_chunks, exact_bytes=True)

    def _cut(
        self, tokens: Tokens, first_only: bool, passages: Texts, draft: Draft, context: Context
    ) -> Facts:
        import pyarrow as pa

        from pipeline.data.chunking import cut

        settings = self.config.data.chunks
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
                for name, text, found in zip(ids, texts, spans(texts, settings.tokens), strict=True):
                    chunks = cut(text, found, settings)[: 1 if first_only else None]
                    names += [f"{name}#{number}" for number in range(len(chunks))]
                    parts += [text[begin:end] for begin, end in chunks]
                    places.extend(chain.from_iterable(chunks))
                    counts.append(len(chunks))
                writer.write(pa.array(names, pa.string()), pa.array(parts, pa.string()))
                bar.update(len(ids))
        made = np.array(counts, np.int64)
        draft.save_array(CHUNK_PLACES, np.ascontiguousarray(np.array(places, np.int64).reshape(-1, 2).T))
        draft.save_array(CHUNK_BOUNDS, np.concatenate([[0], np.cumsum(made)]))
        context.meter.count(len(passages))
        return {"passages": len(passages), "chunks": int(made.sum()), "cut": int((made > 1).sum())}
