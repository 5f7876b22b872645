"""The stages that encode texts, which every kind has that keeps what a model makes of a text.

A kind says in a `RowFormat` how the rows of its model are checked and kept; all else is the same for all:
texts are encoded in shards, by whatever engine, and shards that an interrupted run has finished are kept.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from pipeline import encoders, engines
from pipeline.config import ModelSettings, keyed_settings
from pipeline.core.progress import Bar
from pipeline.core.records import Collection, Texts
from pipeline.encoders import CalibrationCorpus, Model, Precomputed, Source, Usage
from pipeline.engines import Engine, Part, jobs
from pipeline.models.model import Role
from pipeline.retrievers.retriever import Retriever, TokenCounter
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, Stage
from pipeline.retrievers.vector_search import counted_parts
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Artifact, Draft
from pipeline.storage.store import Store

Settings = TypeVar("Settings", bound=ModelSettings)


@dataclass(frozen=True)
class RowFormat:
    """How the rows that a model makes of texts, one for each text, are kept.

    Attributes:
        save: Checks consecutive rows and writes them as one file, `vector_shards.shard_name`; given the
            draft, the number of the first row, the rows and the texts' ids.
        open: Opens all rows of a finished artifact.
    """

    save: Callable[[Draft, int, Any, list[str]], None]
    open: Callable[[Artifact], Any]


class EncodingRetriever(Retriever[Settings], ABC):
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

    def check_collection(self, collection: Collection) -> None:
        """Refuse settings that do not fit the collection, before its texts are encoded."""
        if isinstance(self.model, Precomputed):
            self.model.match(collection)

    def open_engine(self, store: Store) -> Engine:
        """See `Retriever.open_engine`; rows from files are read here, and only searched elsewhere."""
        return engines.open_engine(self.config.engine, self.settings, self.model, store)

    def token_counter(self) -> TokenCounter | None:
        """See `Retriever.token_counter`."""
        return encoders.token_counter(self.model)

    def encode_stage(self, role: Role, schema: int, kept: RowFormat) -> Stage:
        """Encodes the passages or the queries; shards that an interrupted run has finished are kept."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            texts = self.identity.passages if role == "passages" else self.identity.queries
            prepared = encoders.prepared_keys(self.settings, self.model)
            settings = keyed_settings(self.settings, role)
            return {"texts": texts, "model": self.model.recipe(role), **prepared, **settings}

        return Stage(role, schema, ("data",), ingredients, partial(self._encode, role, kept), kept.open)

    def _encode(self, role: Role, kept: RowFormat, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        collection: Collection = inputs["data"]
        self.check_collection(collection)
        texts = collection.passages if role == "passages" else collection.queries
        missing = vector_shards.missing_ranges(len(texts), self.settings.shard_rows, draft.whole)
        todo = sum(stop - start for start, stop in missing)
        usage = Usage()
        if missing and isinstance(self.model, Model):
            context.engine.load(len(missing))
        bar_of = context.progress(f"encode {role}", todo, "texts")
        with bar_of as bar, context.meter.working():
            for start, rows, cost in self._shards(role, texts, missing, context, bar):
                ids = texts.ids.slice(start, len(rows)).to_pylist()
                kept.save(draft, start, rows, ids)
                usage.add(cost)
        context.meter.count(len(texts), worked=todo)
        context.meter.note("encoding", usage.figures())
        return {"rows": len(texts)}

    def _shards(
        self, role: Role, texts: Texts, ranges: list[tuple[int, int]], context: Context, bar: Bar
    ) -> Iterator[tuple[int, Any, Usage]]:
        """For each range of texts its start, the rows that the model makes of them, and what they cost."""
        if isinstance(self.model, Precomputed):
            for start, stop in ranges:
                ids = texts.ids.slice(start, stop - start)
                yield start, self.model.take(role, range(start, stop), ids), Usage(texts=stop - start)
                bar.update(stop - start)
            return

        def read(start: int, stop: int) -> list[str]:
            chosen: list[str] = texts.texts.slice(start, stop - start).to_pylist()
            return chosen

        parts = [Part(start, stop, partial(read, start, stop)) for start, stop in ranges]
        for done in counted_parts(context.engine, context.meter, partial(jobs.encode, role), parts, bar):
            yield done.part.start, *done.outputs
