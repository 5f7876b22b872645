"""The stages that encode texts, which every kind has that keeps what a model makes of a text.

A kind says in a `RowFormat` how the rows of its model are checked and kept; all else is the same for all:
rows of texts that were encoded before are copied, and the other texts are encoded in shards,
by whatever engine. Shards that an interrupted run has finished are kept.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from pipeline import encoders, engines
from pipeline.config import ModelSettings, keyed_settings
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Texts
from pipeline.encoders import CalibrationCorpus, Model, Precomputed, Served, Source, Usage
from pipeline.engines import Engine, Part, jobs
from pipeline.models.model import ROLES, Role
from pipeline.retrievers.retriever import TokenCounter
from pipeline.retrievers.rows import Pace, RowFormat, RowMaking, find_known_rows
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, OpensEngine, Stage, Work
from pipeline.retrievers.texts import TextRetriever, Tokens
from pipeline.retrievers.vector_search import counted_parts
from pipeline.storage import text_table, vector_shards
from pipeline.storage.artifacts import Artifact, Draft
from pipeline.storage.hashing import hash_json
from pipeline.storage.store import Store

Settings = TypeVar("Settings", bound=ModelSettings)


class EncodingRetriever(TextRetriever[Settings], ABC):
    """A retriever that keeps rows that a model makes of texts, or that are given in files."""

    @cached_property
    def model(self) -> Source:
        """The model that `model.name` names, or rows from files; this collection calibrates int8."""
        found = self.identities.model(self.settings)
        if not isinstance(found, Model):
            return found
        return replace(found, corpus=CalibrationCorpus(self.identity.passages, self.corpus))

    def check(self, search_is_cached: bool) -> None:
        """See `Retriever.check`."""
        engines.check(self.config.engine, self.model)
        if search_is_cached:
            return
        if isinstance(self.model, Served):
            self.model.check()
        self._check_chunks()

    def confirm(self, store: Store, fresh: bool) -> None:
        """See `Retriever.confirm`."""
        if isinstance(self.model, Served):
            self.model.confirm(store, fresh)

    def _check_chunks(self) -> None:
        """Refuse chunks that are longer than what the model reads: the end of each would not be searched."""
        chunks = self.config.data.chunks
        if chunks is None or not isinstance(self.model, Model):
            return
        room = encoders.room_for_text(self.model)
        if chunks.tokens > room:
            raise InputError(
                f"data.chunks.tokens is {chunks.tokens:,}, and model '{self.model.name}' reads {room:,} "
                "tokens of a passage, besides special tokens and the instruction",
                allowed=f"1 to {room:,}",
                fix="lower it, or raise model.passage_max_length if the model can read more",
            )

    def tokens(self) -> Tokens:
        """See `TextRetriever.tokens`: those of the model's own tokenizer."""
        if not isinstance(self.model, Model):
            raise RuntimeError("rows from files have no tokenizer")
        return Tokens(self.model.files.tokenizer_identity, partial(encoders.token_spans, self.model))

    def models(self) -> list[Model]:
        """See `Retriever.models`."""
        return [self.model] if isinstance(self.model, Model) else []

    def check_collection(self, collection: Collection) -> None:
        """See `Retriever.check_collection`."""
        if isinstance(self.model, Precomputed):
            self.model.match(collection)

    def open_engine(self, store: Store) -> Engine:
        """See `Retriever.open_engine`; rows from files are read here, and only searched elsewhere."""
        return engines.open_engine(self.config.engine, self.settings, self.model, store)

    def engine_key(self) -> Any:
        """See `Retriever.engine_key`: the engine's settings and the model's, with the bytes of its files."""
        if not isinstance(self.model, Model):
            return self
        prepared = encoders.prepared_keys(self.settings, self.model)
        return hash_json(
            {
                "engine": self.config.engine.model_dump(mode="json"),
                "settings": self.settings.model_dump(mode="json"),
                "device": self.model.device,
                "model": [self.model.recipe(role) for role in ROLES],
                "prepared": prepared,
            }
        )

    def token_counter(self) -> TokenCounter | None:
        """See `Retriever.token_counter`."""
        return encoders.token_counter(self.model)

    def encode_stage(self, role: Role, schema: int, kept: RowFormat) -> Stage:
        """Encodes the passages or the queries; shards that an interrupted run has finished are kept."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            texts = self.texts_key(role, keys)
            prepared = encoders.prepared_keys(self.settings, self.model)
            settings = keyed_settings(self.settings, role)
            return {"texts": texts, "model": self.model.recipe(role), **prepared, **settings}

        make = partial(self._encode, role, kept)
        work = None
        if role == "passages" and isinstance(self.model, Model):
            work = Work("encode", "texts", partial(self._unknown_texts, role), of_passages=not self.cuts)
        stage = Stage(role, schema, (self.source_of(role),), ingredients, make, kept.open, work=work)
        if not isinstance(self.model, Served):
            return stage
        return replace(stage, open_engine=OpensEngine((self, "server"), self._open_connection))

    def _unknown_texts(
        self, role: Role, opened: Callable[[str], Any], alike: Sequence[Artifact]
    ) -> int | None:
        """How many texts are in no artifact of the same model; None if they have not been read or cut."""
        source = opened(self.source_of(role))
        if source is None:
            return None
        texts = self.texts_of(role, {self.source_of(role): source})
        if not alike:
            return len(texts)
        hashes = text_table.hash_texts(texts.texts)
        return int(find_known_rows(alike, hashes, np.ones(len(texts), np.bool_)).new.sum())

    def _open_connection(self, store: Store) -> Engine:
        """The engine that encodes, if a server does."""
        assert isinstance(self.model, Served)
        return engines.ServerEngine(self.model.load)

    def _encode(self, role: Role, kept: RowFormat, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        texts, most = self.texts_of(role, inputs), self.settings.shard_rows
        if isinstance(self.model, Precomputed):
            missing = vector_shards.missing_ranges(len(texts), most, draft.whole)
            self._take_given(self.model, role, texts, missing, partial(kept.save, draft), context)
            return {"rows": len(texts)}
        hashes = text_table.hash_texts(texts.texts)
        own = RowMaking.begin(texts, hashes, kept, draft, most, partial(context.find_alike, "texts"))
        facts: Facts = {"rows": len(texts)}
        usage = _Encoding(role, own, context).run(most)
        draft.save_array(text_table.NAME, text_table.table_of(hashes))
        todo = int(own.new.sum())
        context.meter.count(len(texts), worked=todo)
        context.meter.note("encoding", usage.figures())
        context.meter.note("found", int(own.wanted.sum()) - todo)
        return facts

    @staticmethod
    def _take_given(
        source: Precomputed,
        role: Role,
        texts: Texts,
        missing: Sequence[tuple[int, int]],
        save: Callable[[int, Any, list[str]], None],
        context: Context,
    ) -> None:
        """Copy rows from files, a shard at a time."""
        todo = sum(stop - start for start, stop in missing)
        with context.progress(f"encode {role}", todo, "texts") as bar, context.meter.working():
            for start, stop in missing:
                ids = texts.ids.slice(start, stop - start)
                save(start, source.take(role, range(start, stop), ids), ids.to_pylist())
                bar.update(stop - start)
        context.meter.count(len(texts), worked=todo)
        context.meter.note("encoding", Usage(texts=todo).figures())


@dataclass(frozen=True)
class _Encoding:
    """A pass of a model over the texts of one role."""

    role: Role
    own: RowMaking
    context: Context

    def run(self, most: int) -> Usage:
        """Write all missing rows, and return what it cost to make those that are not known.

        Shards hold at most `most` rows, and fewer new ones if they take long; see `Pace`.
        """
        own, context, new = self.own, self.context, self.own.new
        left = []
        for start, stop in own.missing:
            if new[start:stop].any():
                left.append((start, stop))
            else:
                own.write(start, stop, None)
        usage, todo = Usage(), int(new.sum())
        if not todo:
            return usage
        pace = Pace(most)
        context.engine.load(-(-todo // pace.texts))
        pace.workers = context.engine.workers
        job = partial(jobs.encode, self.role)
        bar_of = context.progress(f"encode {self.role}", todo, "texts")
        with bar_of as bar, context.meter.working():
            pace.start()
            for done in counted_parts(context.engine, context.meter, job, self._cut(left, pace), bar):
                made, cost = done.outputs
                start, stop = done.part.start, done.part.stop
                own.write(start, stop, made)
                usage.add(cost)
                pace.count(cost.texts)
        return usage

    def _cut(self, spans: Sequence[tuple[int, int]], pace: Pace) -> Iterator[Part]:
        """Parts of some spans, each with as many new texts as the pace allows."""
        counts = np.concatenate([[0], np.cumsum(self.own.new)])
        for first, last in spans:
            start = first
            while start < last:
                within = int(np.searchsorted(counts, counts[start] + pace.texts, side="right")) - 1
                stop = min(max(within, start + 1), last)
                yield Part(start, stop, partial(self.own.read, start, stop))
                start = stop
