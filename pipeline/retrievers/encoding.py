"""The stages that encode texts, which every kind has that keeps what a model makes of a text.

A kind says in a `RowFormat` how the rows of its model are checked and kept; all else is the same for all:
rows of texts that were encoded before are copied (`known_rows`), and the other texts are encoded in shards,
by whatever engine. Shards that an interrupted run has finished are kept.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from pipeline import encoders, engines
from pipeline.config import ModelSettings, keyed_settings
from pipeline.core.records import Array, Collection, Int64, Texts
from pipeline.encoders import CalibrationCorpus, Model, Precomputed, Source, Usage
from pipeline.engines import Engine, Part, jobs
from pipeline.models.model import ROLES, Role
from pipeline.retrievers.known_rows import KnownRows, find_known_rows
from pipeline.retrievers.pace import Pace
from pipeline.retrievers.retriever import Retriever, TokenCounter
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, Stage
from pipeline.retrievers.vector_search import counted_parts
from pipeline.storage import text_table, vector_shards
from pipeline.storage.artifacts import Artifact, Draft
from pipeline.storage.hashing import hash_json
from pipeline.storage.store import Store

Settings = TypeVar("Settings", bound=ModelSettings)


@dataclass(frozen=True)
class RowFormat:
    """How the rows that a model makes of texts, one for each text, are kept.

    Attributes:
        save: Checks consecutive rows and writes them as one file, `vector_shards.shard_name`; given the
            draft, the number of the first row, the rows and the texts' ids.
        open: Opens all rows of a finished artifact.
        read: Some rows of a finished artifact, by their numbers, int64 [n], in any order, as `save` takes
            them.
        join: The rows of several such parts, one after the other, taken in an order, int64 [rows].
    """

    save: Callable[[Draft, int, Any, list[str]], None]
    open: Callable[[Artifact], Any]
    read: Callable[[Artifact, Int64], Any]
    join: Callable[[Sequence[Any], Int64], Any]


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
            texts = self.identity.passages if role == "passages" else self.identity.queries
            prepared = encoders.prepared_keys(self.settings, self.model)
            settings = keyed_settings(self.settings, role)
            return {"texts": texts, "model": self.model.recipe(role), **prepared, **settings}

        return Stage(role, schema, ("data",), ingredients, partial(self._encode, role, kept), kept.open)

    def _encode(self, role: Role, kept: RowFormat, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        collection: Collection = inputs["data"]
        texts = collection.passages if role == "passages" else collection.queries
        missing = vector_shards.missing_ranges(len(texts), self.settings.shard_rows, draft.whole)
        if isinstance(self.model, Precomputed):
            self._take_given(self.model, role, texts, missing, partial(kept.save, draft), context)
            return {"rows": len(texts)}
        wanted = np.zeros(len(texts), np.bool_)
        for start, stop in missing:
            wanted[start:stop] = True
        hashes = text_table.hash_texts(texts.texts)
        known = find_known_rows(context.find_alike("texts"), hashes, wanted)
        making = _Making(role, texts, kept, known, draft, context)
        left = []
        for start, stop in missing:
            if known.new[start:stop].any():
                left.append((start, stop))
            else:
                making.write(start, stop, None)
        usage = making.encode(left, wanted & known.new, self.settings.shard_rows)
        draft.save_array(text_table.NAME, text_table.table_of(hashes))
        todo = int((wanted & known.new).sum())
        context.meter.count(len(texts), worked=todo)
        context.meter.note("encoding", usage.figures())
        context.meter.note("found", int(wanted.sum()) - todo)
        return {"rows": len(texts)}

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
class _Making:
    """The rows of one role, of which some are known and the others are made."""

    role: Role
    texts: Texts
    kept: RowFormat
    known: KnownRows
    draft: Draft
    context: Context

    def write(self, start: int, stop: int, made: Any) -> None:
        """Write rows [start, stop): those that are known, and `made`, those of the other texts in order."""
        places = self.known.places(start, stop)
        rows = made
        if places:
            parts = [self.kept.read(artifact, found) for artifact, _, found in places]
            positions = [where for _, where, _ in places]
            if made is not None:
                parts.append(made)
                positions.append(np.flatnonzero(self.known.new[start:stop]))
            rows = self.kept.join(parts, np.argsort(np.concatenate(positions)))
        ids: list[str] = self.texts.ids.slice(start, stop - start).to_pylist()
        self.kept.save(self.draft, start, rows, ids)

    def encode(self, spans: Sequence[tuple[int, int]], new: Array, most: int) -> Usage:
        """Make the rows of the texts in some spans that are `new`, bool [texts]; returns what it cost.

        Shards hold at most `most` rows, and fewer new ones if they take long; see `Pace`.
        """
        usage, todo = Usage(), int(new.sum())
        if not todo:
            return usage
        context = self.context
        pace = Pace(most)
        context.engine.load(-(-todo // pace.texts))
        pace.workers = context.engine.workers
        counts = np.concatenate([[0], np.cumsum(new)])

        def cut() -> Iterator[Part]:
            for first, last in spans:
                start = first
                while start < last:
                    within = int(np.searchsorted(counts, counts[start] + pace.texts, side="right")) - 1
                    stop = min(max(within, start + 1), last)
                    yield Part(start, stop, partial(self._read, start, stop))
                    start = stop

        job = partial(jobs.encode, self.role)
        bar_of = context.progress(f"encode {self.role}", todo, "texts")
        with bar_of as bar, context.meter.working():
            pace.start()
            for done in counted_parts(context.engine, context.meter, job, cut(), bar):
                made, cost = done.outputs
                self.write(done.part.start, done.part.stop, made)
                usage.add(cost)
                pace.count(cost.texts)
        return usage

    def _read(self, start: int, stop: int) -> list[str]:
        """The new texts of [start, stop)."""
        rows = start + np.flatnonzero(self.known.new[start:stop])
        chosen: list[str] = self.texts.texts.take(pa.array(rows)).to_pylist()
        return chosen
