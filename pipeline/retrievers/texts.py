"""What retrievers share that read texts themselves: whole passages, or the chunks that passages are cut into.

With `data.chunks`, a stage `chunks` comes first, and the stages that read passages read chunks instead. Their
search ranks the passages, here called documents, by the scores of their chunks (`search.aggregate`). `first`
needs no other scores than those of the first chunks, so no others are made.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.config import ChunkSettings, Config, keyed_settings
from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.order import descending_id_rank
from pipeline.core.records import ROLES, Chunks, Float32, Int64, Ranking, Role, Texts
from pipeline.data.collection_files import CHUNK_BOUNDS, CHUNK_PLACES, CHUNK_TEXTS, open_chunks, write_texts
from pipeline.encoders.opener import EmbeddingSource
from pipeline.engines.engine import EngineFactory
from pipeline.retrievers.retriever import (
    CHUNKS,
    COLLECTION,
    Find,
    Retriever,
    Search,
    open_ranking,
    save_ranking,
)
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage
from pipeline.search.bm25_index import Tokenization
from pipeline.storage.artifacts import Draft

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.models.model import ResolvedModel

Rank = Callable[[Inputs, int, Context], Ranking]
"""(inputs, k, context) -> the best k passages of each query."""
SCHEMAS = {CHUNKS: 2}
BATCH = 1024  # passages cut at once


def text_stages(
    retriever: Retriever,
    source: EmbeddingSource | Tokenization,
    schemas: Mapping[str, int],
    make: Callable[[Role, Any, Inputs, Draft, Context], Facts],
    *formats: Any,
) -> Plan:
    """The stages `passages` and `queries`; before them `chunks`, if the config says to cut passages.

    Args:
        retriever: Whose they are.
        source: What shapes the results besides the texts and the settings.
        schemas: By role, as of `Stage`.
        make: (role, format, inputs, draft, context) -> facts.
        formats: How the results of `passages` and of `queries` are stored; `open` is as of `Stage`.
    """
    chunks, identity, server = retriever.config.data.chunks, retriever.identity, None
    if retriever.source and retriever.source.served:
        server = EngineFactory(retriever.source, None)
    plan: Plan = {CHUNKS: _chunk_stage(retriever, chunks, source.model)} if chunks else {}
    of_roles = identity.passages, identity.queries
    for role, texts, form in zip(ROLES, of_roles, formats, strict=True):
        cut = role == "passages" and chunks is not None
        settings = {**source.ingredients(role), **keyed_settings(retriever.settings, role)}
        plan[role] = Stage(
            role,
            schemas[role],
            needs=(CHUNKS if cut else COLLECTION,),
            made_of={"texts": CHUNKS} if cut else {},
            settings=settings if cut else {"texts": texts, **settings},
            make=partial(make, role, form),
            open=form.open,
            engine=server,
            grows_with=role,
        )
    return plan


def texts_of(role: Role, inputs: Inputs) -> Texts:
    """The texts of a role, of the inputs of one of `text_stages`; or those that a `search_stage` searches."""
    if CHUNKS in inputs:
        chunks: Chunks = inputs[CHUNKS]
        return chunks.texts
    texts: Texts = inputs[COLLECTION].passages if role == "passages" else inputs[COLLECTION].queries
    return texts


def tie_order(config: Config, inputs: Inputs) -> Int64:
    """int64 [passages or chunks]: the order of ties, see `pipeline.core.order.descending_id_rank`."""
    ids = texts_of("passages", inputs).ids
    # equal chunks decide nothing
    return np.arange(len(ids)) if config.data.chunks else descending_id_rank(ids)


def search_stage(
    retriever: Retriever,
    schema: int,
    searched: tuple[str, ...],
    make: Callable[[Inputs, Draft, Context], Facts],
    settings: Facts,
    index: str = "index",
) -> Stage:
    """The stage `search`, whose `make` reads the roles `searched` besides the texts, whose ids decide ties.

    `settings` shape the ranking besides the config's section and the aggregation of chunks. The key of the
    role `index`, which is searched, is an ingredient beside that of the queries.
    """
    config, made_of = retriever.config, {"index": index, "queries": "queries"}
    settings |= keyed_settings(config.search, "search") | keyed_settings(config.data, "search")
    if config.data.ignored == "negative_grades":
        settings["qrels"] = retriever.identity.qrels["qrels"]
    needs = (COLLECTION, *searched)
    if config.data.chunks:
        settings["aggregate"] = config.search.aggregate
        needs = (COLLECTION, CHUNKS, *searched)
    return Stage("search", schema, needs, made_of, settings, make, open_ranking, grows_with="product")


def search(
    retriever: Retriever, inputs: Inputs, draft: Draft, context: Context, search_parts: Rank | None = None
) -> Facts:
    """Save the best `top_k` passages of each query that are not ignored.

    They are found in this process, by `Retriever.open_search`, or by `search_parts`.
    """
    from pipeline.metrics.scoring import drop_hits, ignored_hits

    config, collection = retriever.config, inputs[COLLECTION]
    ignored, top_k = ignored_hits(collection, config.data.ignored), config.search.top_k
    depth = top_k + int(np.bincount(ignored.queries).max(initial=0))  # leaves `top_k` of every query
    count = context.meter.items = len(collection.queries)
    if search_parts:
        ranking = search_parts(inputs, depth, context)
    else:
        opened = retriever.open_search(inputs)
        find = search_documents(config, inputs, opened) if config.data.chunks else opened.find
        with context.progress("search", count, "queries") as bar, context.meter.working():
            ranking = find(inputs["queries"], depth, bar)
    if depth > top_k:
        ranking = drop_hits(ranking, ignored, top_k)
    return save_ranking(draft, collection, ranking)


def search_documents(config: Config, inputs: Inputs, of_chunks: Search) -> Find:
    """Finds documents by a search of their chunks; `inputs` are those of a `search_stage`."""
    from pipeline.search.documents import Documents, rank

    documents = Documents(np.asarray(inputs[CHUNKS].bounds), config.search.aggregate == "mean")
    ids = inputs[COLLECTION].passages.ids

    def find(queries: Any, k: int, bar: Bar) -> Ranking:
        def find_chunks(chosen: Int64, k: int, bar: Bar) -> Ranking:
            return of_chunks.find(of_chunks.take(queries, chosen), k, bar)

        def score_chunks(query: int, chunks: Int64) -> Float32:
            assert of_chunks.score
            return of_chunks.score(of_chunks.take(queries, np.array([query])), chunks)

        score = score_chunks if of_chunks.score else None
        return rank(find_chunks, len(queries), documents, k, ids, bar, score)

    return find


def _chunk_stage(retriever: Retriever, chunks: ChunkSettings, model: ResolvedModel | None) -> Stage:
    """Cuts the passages by the tokens of a model, or by words where there is none."""
    config = retriever.config
    tokens: Facts = {"words": 1}
    if model:
        _check_length(chunks, model)
        tokens = {**model.tokenizer_identity, "probe": model.tokenizer.probe}
    settings = {
        "passages": retriever.identity.passages,
        "tokens": tokens,
        "first_only": config.search.aggregate == "first",  # then no other chunks are made
        **keyed_settings(config.data, CHUNKS),
    }
    make = partial(_cut, config, model)
    return Stage(CHUNKS, SCHEMAS[CHUNKS], (COLLECTION,), {}, settings, make, open_chunks, exact_bytes=True)


def _check_length(chunks: ChunkSettings, model: ResolvedModel) -> None:
    """Refuse chunks that are longer than what the model reads: their ends would not be searched."""
    room = model.room_for_texts(special=False)["passages"]
    if chunks.tokens > room:
        raise InputError(
            f"data.chunks.tokens is {chunks.tokens:,}, and model '{model.name}' reads {room:,} "
            "tokens of a passage, besides special tokens and the instruction",
            allowed=f"1 to {room:,}",
            fix="lower it, or raise model.passage_max_length if the model can read more",
        )


def _cut(
    config: Config, model: ResolvedModel | None, inputs: Inputs, draft: Draft, context: Context
) -> Facts:
    """Cut the passages; `model` is as of `_chunk_stage`."""
    import pyarrow as pa

    from pipeline.data.chunking import cut_texts, word_spans
    from pipeline.models.tokenizer import token_spans

    settings, passages = config.data.chunks, inputs[COLLECTION].passages
    assert settings is not None
    spans = token_spans(model.tokenizer) if model else word_spans
    first_only = config.search.aggregate == "first"
    places, counts = array("q"), array("q")

    def chunk_texts() -> Iterator[tuple[pa.Array, pa.Array]]:
        for start in range(0, len(passages), BATCH):
            ids, texts = (column.slice(start, BATCH).to_pylist() for column in (passages.ids, passages.texts))
            names, parts = [], []
            cuts = cut_texts(texts, spans, settings, first_only)
            for name, text, chunks in zip(ids, texts, cuts, strict=True):
                names += [f"{name}#{number}" for number in range(len(chunks))]
                parts += [text[begin:end] for begin, end in chunks]
                places.extend(chain.from_iterable(chunks))
                counts.append(len(chunks))
            yield pa.array(names, pa.string()), pa.array(parts, pa.string())
            bar.update(len(ids))

    bar_of = context.progress("cut passages", len(passages), "passages")
    with draft.file(CHUNK_TEXTS) as path, bar_of as bar:
        write_texts(path, chunk_texts())
    per_passage = np.array(counts, np.int64)
    draft.save_array(CHUNK_PLACES, np.ascontiguousarray(np.array(places, np.int64).reshape(-1, 2).T))
    draft.save_array(CHUNK_BOUNDS, np.concatenate([[0], np.cumsum(per_passage)]))
    context.meter.items = len(passages)
    return {
        "passages": len(passages),
        "chunks": int(per_passage.sum()),
        "cut": int((per_passage > 1).sum()),
    }
