"""How are the stages made that BM25 makes its own way? Words instead of vectors, and an index of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pipeline import words
from pipeline.core.machine import Meter
from pipeline.encoders.bm25 import Lexical
from pipeline.models.model import Role
from pipeline.stages import Maker, keep_ranking
from pipeline.storage.artifacts import Draft

if TYPE_CHECKING:
    from pipeline.benchmark import Benchmark


def make_passages(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Cut the corpus into words."""
    return _tokenize(benchmark, "passages", draft, meter)


def make_queries(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Cut the queries into words."""
    return _tokenize(benchmark, "queries", draft, meter)


def _tokenize(benchmark: Benchmark, role: Role, draft: Draft, meter: Meter) -> dict[str, Any]:
    collection = benchmark.collection
    texts = collection.passages if role == "passages" else collection.queries
    with meter.working(), benchmark.progress(f"tokenize {role}", len(texts), "texts") as bar:
        found = Lexical.of(benchmark.config.model).tokenize(texts, bar)
    words.write(draft, found)
    meter.count(len(texts))
    return {"rows": len(texts), "words": len(found.ids), "vocabulary": len(found.vocabulary)}


def make_index(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Build the index from the passages' words."""
    from pipeline.search import bm25

    model, passages = benchmark.config.model, words.open_words(benchmark.ensure("passages"))
    with meter.working(), benchmark.progress("index", len(passages), "passages") as bar:
        index = bm25.build(passages, model.k1, model.b)
        bar.update(len(passages))
    with draft.scratch() as aside:
        for name in bm25.write(index, aside):
            with draft.file(name) as path:
                os.replace(aside / name, path)
    meter.count(len(passages))
    return {"rows": len(passages), "vocabulary": len(passages.vocabulary)}


def make_search(benchmark: Benchmark, draft: Draft, meter: Meter) -> dict[str, Any]:
    """Search the index for every query."""
    from pipeline.core.order import descending_id_rank
    from pipeline.search import bm25

    index = bm25.read(benchmark.ensure("index").folder)
    queries, collection = words.open_words(benchmark.ensure("queries")), benchmark.collection
    id_rank = descending_id_rank(collection.passages.ids)
    with meter.working(), benchmark.progress("search", len(queries), "queries") as bar:
        ranking = bm25.search(index, queries, benchmark.config.search.top_k, id_rank, bar)
    meter.count(len(queries))
    return keep_ranking(draft, collection, ranking)


MAKERS: dict[str, Maker] = {
    "passages": make_passages,
    "queries": make_queries,
    "index": make_index,
    "search": make_search,
}
"""What takes the place of `stages.MAKERS` of the same name."""
