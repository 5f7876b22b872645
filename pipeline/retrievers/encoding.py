"""The encoding stages of the dense, sparse and multi-vector retrievers.

A kind says in a `RowFormat` how the rows of its model are checked and kept. Rows of texts that were encoded
before are copied, the others are encoded in shards by an engine; shards that an interrupted run has finished
are kept.
"""

from __future__ import annotations

from abc import ABC
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from pipeline.config import RowSettings
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.records import Role, Texts
from pipeline.encoders.batching import Usage
from pipeline.encoders.opener import EmbeddingSource, TextOpener
from pipeline.engines import engine as jobs
from pipeline.engines.base import Part
from pipeline.retrievers.retriever import QueryEncoder, Retriever
from pipeline.retrievers.rows import (
    TEXTS,
    RowFormat,
    Rows,
    ShardWriter,
    hash_texts,
    table_of,
    token_counts,
)
from pipeline.retrievers.stage import Context, Facts, Inputs
from pipeline.retrievers.texts import texts_of
from pipeline.retrievers.truncation import Truncation, truncation_of
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Draft
from pipeline.storage.store import Store


class EncodingRetriever(Retriever[RowSettings], ABC):
    """A retriever that keeps rows that a model makes of texts, or that are given in files."""

    source: EmbeddingSource  # gives the rows

    @override
    def encode_query(self, store: Store) -> QueryEncoder:
        if self.source.stored:
            raise InputError(
                f"{self.config.label}: its vectors come from files, and no model encodes a query",
                allowed="a model that runs here or is served",
                fix="name a result of such a model",
            )
        source = self.source
        encoder: Any
        if isinstance(source, TextOpener):
            prepared = source.prepare(store)
            encoder = source.load(prepared.folder if prepared else None, watched=False)
        else:
            encoder = source.open(store)

        def encode(text: str, usage: Usage) -> Any:
            with silent("", None, "") as bar:
                return self.query_row(encoder.encode([text], "queries", usage, bar))

        return encode

    def query_row(self, encoded: Any) -> Any:
        """What a model gives for a query, as the stage `queries` would open it."""
        return encoded

    def _encode(self, role: Role, form: RowFormat, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        """Encode the passages or the queries; shards that an interrupted run has finished are kept."""
        texts = texts_of(role, inputs)
        if self.source.stored:
            self._copy_precomputed(role, texts, form, draft, context)
            return {"rows": len(texts)}
        hashes = hash_texts(texts.texts)
        writer = ShardWriter(texts, hashes, form, draft, self.settings.shard_rows, context)
        parts, usage, n_new = list[Part](), Usage(), int(writer.new.sum())
        for start, stop in writer.missing:
            if writer.new[start:stop].any():
                parts.append(Part(start, stop, partial(writer.read, start, stop)))
            else:
                writer.write(start, stop)
        if parts:
            context.open_engine().load(len(parts))
            bar_of = context.progress(f"encode {role}", n_new, "texts")
            # A part is checked and written by a thread, while the next one is computed. At most one waits for
            # it, so that a run which is killed loses no more than the parts under way.
            writing = None
            with bar_of as bar, context.meter.working(), ThreadPoolExecutor(1) as thread:
                for result in context.counted_parts(partial(jobs.encode, role), parts, bar):
                    if writing:
                        writing.result()
                    part, (rows, cost) = result.part, result.outputs
                    writing = thread.submit(writer.write, part.start, part.stop, rows, cost.counts)
                    usage.add(cost)
                if writing:
                    writing.result()
        draft.save_array(TEXTS, table_of(hashes))
        context.meter.items, context.meter.worked_on = len(texts), n_new
        context.meter.notes["encoding"] = usage.figures()
        context.meter.notes["found"] = int(writer.wanted.sum()) - n_new
        counts = token_counts(draft.whole, lambda name: np.load(draft.folder / name, allow_pickle=False))
        if counts is None or self.source.model is None:
            return {"rows": len(texts)}
        cut = truncation_of(counts, self.source.model.max_lengths[role])
        return {"rows": len(texts), Truncation.key: cut}

    def _copy_precomputed(
        self, role: Role, texts: Texts, form: RowFormat, draft: Draft, context: Context
    ) -> None:
        """Copy rows from files, a shard at a time."""
        missing = vector_shards.missing_ranges(len(texts), self.settings.shard_rows, draft.whole)
        n_missing = sum(stop - start for start, stop in missing)
        with context.progress(f"encode {role}", n_missing, "texts") as bar, context.meter.working():
            for start, stop in missing:
                ids = texts.ids.slice(start, stop - start)
                rows: Rows = self.source.take(role, range(start, stop), ids)
                form.save(draft, start, rows, ids.to_pylist())
                bar.update(stop - start)
        context.meter.items, context.meter.worked_on = len(texts), n_missing
        context.meter.notes["encoding"] = Usage(texts=n_missing).figures()
