"""The `sparse` kind: word weights for each text, and an inverted index of the passages' weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from pipeline.config import keyed_settings
from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.records import RaggedRows, Ranking
from pipeline.retrievers.encoding import EncodingRetriever
from pipeline.retrievers.retriever import Search
from pipeline.retrievers.rows import RaggedFormat
from pipeline.retrievers.sections import Sparsity
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage
from pipeline.retrievers.texts import (
    search,
    search_stage,
    text_stages,
    texts_of,
    tie_order,
)
from pipeline.storage import ragged_shards
from pipeline.storage.artifacts import Draft
from pipeline.storage.vector_shards import shard_name

SCHEMAS = {"passages": 2, "queries": 2, "index": 1, "search": 1}


class WeightFormat(RaggedFormat):
    """The weights of words of each text, which are numbers above 0."""

    @override
    def save(self, draft: Draft, start: int, rows: RaggedRows, ids: list[str]) -> None:
        weights = rows.columns[1]
        wrong = ~((weights > 0) & np.isfinite(weights))
        if wrong.any():
            entry = int(np.argmax(wrong))
            text = ids[int(np.searchsorted(rows.ends, entry, side="right"))]
            raise InputError(
                f"word {rows.columns[0][entry]} of '{text}' has the weight {weights[entry]:.4g}; "
                f"{int(wrong.sum()):,} of {len(weights):,} weights affected",
                allowed="finite numbers above 0",
                fix="check the model's weights; make weights from a file again",
            )
        super().save(draft, start, rows, ids)


class Sparse(EncodingRetriever):
    """Weights of words, and an inverted index."""

    @override
    def stages(self) -> Plan:
        """Where memory is limited, the stored rows are searched, and inverted part by part."""
        searched = "index" if self.config.search.memory_mb is None else "passages"
        formats = WeightFormat(), WeightFormat(held=True)
        return {
            **text_stages(self, self.source, SCHEMAS, self._encode, *formats),
            "index": Stage(
                "index",
                SCHEMAS["index"],
                needs=("passages",),
                made_of={"passages": "passages"},
                settings=keyed_settings(self.settings, "index"),
                make=_build,
                open=ragged_shards.open_shards,
            ),
            "search": search_stage(self, SCHEMAS["search"], (searched, "queries"), self._search, {}),
        }

    @override
    def open_search(self, inputs: Inputs) -> Search:
        from pipeline.search import inverted_index

        segments, order = _segments(inputs), tie_order(self.config, inputs)
        memory_mb = self.config.search.memory_mb
        memory = inverted_index.QUERY_BYTES if memory_mb is None else memory_mb << 18
        inverted_index.compile_all()

        def find(queries: RaggedRows, k: int, bar: Bar) -> Ranking:
            return inverted_index.search(segments, queries, k, order, bar, memory)

        return Search(find, ragged_shards.take_rows)

    def _search(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        from pipeline.search import inverted_index

        facts, rows = search(self, inputs, draft, context), len(texts_of("passages", inputs))
        sparsity = inverted_index.sparsity(_segments(inputs), rows, inputs["queries"])
        return {**facts, Sparsity.key: sparsity}


def _segments(inputs: Inputs) -> Any:
    """The index, or the stored rows, which are inverted part by part while they are searched."""
    from pipeline.search import inverted_index

    return inputs["index"] if "index" in inputs else inverted_index.InvertedSegments(inputs["passages"])


def _build(inputs: Inputs, draft: Draft, context: Context) -> Facts:
    """Build the inverted index, in segments; those that an interrupted run has finished are kept."""
    from pipeline.search import inverted_index

    shards = inputs["passages"]
    rows, entries = sum(map(len, shards)), sum(shard.entries for shard in shards)
    with context.progress("index", rows, "passages") as bar, context.meter.working("scipy.sparse"):
        for first, part in ragged_shards.parts_of(shards, inverted_index.SEGMENT_ENTRIES):
            stop = first + len(part)
            if shard_name(first, stop, ragged=True) not in draft.whole:
                ragged_shards.save_shard(draft, first, stop, inverted_index.invert(part))
            bar.update(len(part))
    context.meter.items = rows
    return {"rows": rows, "entries": entries}
