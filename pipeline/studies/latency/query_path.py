"""The way of one query through a benchmark: its model, its index, its reranker, loaded once.

The functions are those of a run. What a run does besides, such as looking for known rows and writing
artifacts, is left out, and nothing is cached.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.order import descending_id_rank
from pipeline.core.records import Collection, Qrels, Ranking, take_texts
from pipeline.core.result_records import in_part
from pipeline.encoders.batching import Usage
from pipeline.encoders.opener import ModelSource
from pipeline.metrics.scoring import drop_hits, ignored_hits
from pipeline.retrievers.encoding import EncodingRetriever
from pipeline.retrievers.fused import FUSE, FusionRetriever
from pipeline.retrievers.reranked import RERANK, RerankingRetriever, rerank
from pipeline.retrievers.retriever import COLLECTION, Retriever
from pipeline.retrievers.texts import search_documents
from pipeline.run.benchmark import Benchmark
from pipeline.search import fusion
from pipeline.studies.latency.record import ENCODE

TOKENIZE, SEARCH = "tokenize", "search"
MODEL, INDEX = "model", "index"


@dataclass
class Clock:
    """Seconds of each stage of one query, and requests that were repeated; of joined retrievers the sums."""

    seconds: dict[str, float] = field(default_factory=dict)
    retries: int = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block."""
        started = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add to a stage."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


Answer = Callable[[str, Clock], Ranking]
"""Ranks passages for one query; several threads may call it."""
Loaded = Callable[[str], None]
"""Called after a part was loaded, with `MODEL` or `INDEX`."""


def load(
    retriever: Retriever, benchmark: Benchmark, query: str, loaded: Loaded, prefix: str = ""
) -> tuple[Answer, Ranking]:
    """Load all parts, and answer one query with each: its first use is a part of loading.

    Returns:
        What answers queries, and its answer to the given one.

    Raises:
        InputError: The retriever is of a kind whose queries cannot be answered one by one.
    """
    if isinstance(retriever, RerankingRetriever):
        return _load_reranking(retriever, benchmark, query, loaded, prefix)
    if isinstance(retriever, FusionRetriever):
        return _load_fusion(retriever, benchmark, query, loaded, prefix)
    if type(retriever).encode_query is not Retriever.encode_query:
        return _load_search(retriever, benchmark, query, loaded, prefix)
    raise InputError(
        f"{benchmark.config.name}: a {type(retriever).__name__} does not answer queries one by one",
        allowed="dense, sparse, multi-vector and BM25 retrievers, fused and reranked",
        fix="name another result",
    )


def _lock(source: ModelSource | None) -> AbstractContextManager[Any]:
    """A lock for a model of this process, which computes one query at a time; none for a server."""
    return threading.Lock() if source and not source.served else nullcontext()


def _load_search(
    retriever: Retriever, benchmark: Benchmark, query: str, loaded: Loaded, prefix: str
) -> tuple[Answer, Ranking]:
    """Tokens, a row, a search."""
    encode = retriever.encode_query(benchmark.store)
    row = encode(query, Usage())
    loaded(MODEL)
    needs = retriever.plan[retriever.ranking].needs
    roles = zip(needs, benchmark.stages[prefix + retriever.ranking].needs, strict=True)
    inputs = {need: benchmark.opened(role) for need, role in roles if need != "queries"}
    opened, config = retriever.open_search(inputs), retriever.config
    find_best = search_documents(config, inputs, opened) if config.data.chunks else opened.find
    collection: Collection = inputs[COLLECTION]
    ignored = ignored_hits(collection, config.data.ignored)
    # the depth of the result's search, as at another an index may find others
    depth = config.search.top_k + int(np.bincount(ignored.queries).max(initial=0))
    ignored_by = defaultdict[str, list[int]](list)  # the text of a query
    texts = take_texts(collection.queries.texts, ignored.queries).to_pylist()
    for text, passage in zip(texts, ignored.passages.tolist(), strict=True):
        ignored_by[text].append(passage)
    source, lock = retriever.source, _lock(retriever.source)

    def find(query: str, row: Any) -> Ranking:
        passages = np.unique(np.array(ignored_by.get(query, ()), np.int64))
        dropped = Qrels(np.zeros_like(passages), passages, passages)
        with silent("", None, "") as bar:
            return drop_hits(find_best(row, depth, bar), dropped, config.search.top_k)

    def answer(query: str, clock: Clock) -> Ranking:
        usage = Usage()
        with lock:
            started = time.perf_counter()
            row = encode(query, usage)
            seconds = time.perf_counter() - started
        clock.retries += usage.server.retries if usage.server else 0
        if source is None or not source.served:
            clock.add(TOKENIZE, usage.tokenize_seconds)
        if isinstance(retriever, EncodingRetriever):
            clock.add(ENCODE, seconds - usage.tokenize_seconds)
        with clock.stage(SEARCH):
            return find(query, row)

    first = find(query, row)
    loaded(INDEX)
    return answer, first


def _load_reranking(
    retriever: RerankingRetriever, benchmark: Benchmark, query: str, loaded: Loaded, prefix: str
) -> tuple[Answer, Ranking]:
    """A first stage, whose best passages are scored again."""
    below, first = load(retriever.first, benchmark, query, loaded, prefix)
    source, lock = retriever.source, _lock(retriever.source)
    scorer = source.open(benchmark.store)
    passages = benchmark.collection.passages
    id_rank = descending_id_rank(passages.ids)

    def score_again(query: str, ranking: Ranking, usage: Usage) -> Ranking:
        best = ranking.passages[0, : retriever.settings.depth]
        texts = take_texts(passages.texts, best[best >= 0]).to_pylist()
        scores = np.full((1, len(best)), -np.inf, np.float32)
        with silent("", None, "") as bar:
            pairs = [(query, text) for text in texts]
            scores[0, best >= 0] = scorer.score(pairs, usage, bar) if pairs else []
        return rerank(ranking, scores, id_rank)

    def answer(query: str, clock: Clock) -> Ranking:
        ranking = below(query, clock)
        usage = Usage()
        with lock, clock.stage(RERANK):
            ranking = score_again(query, ranking, usage)
        clock.retries += usage.server.retries if usage.server else 0
        return ranking

    first = score_again(query, first, Usage())
    loaded(MODEL)
    return answer, first


def _load_fusion(
    retriever: FusionRetriever, benchmark: Benchmark, query: str, loaded: Loaded, prefix: str
) -> tuple[Answer, Ranking]:
    """Several retrievers, one after the other, and their fusion."""
    parts = [
        load(part, benchmark, query, loaded, prefix + in_part(number, ""))
        for number, part in enumerate(retriever.parts, start=1)
    ]
    settings, top_k = retriever.settings, retriever.config.search.top_k
    method = fusion.Fusion(settings.method, settings.normalize, settings.k)
    weights = method.weights(settings.weights, len(parts))
    id_rank = descending_id_rank(benchmark.collection.passages.ids)

    def answer(query: str, clock: Clock) -> Ranking:
        rankings = [part(query, clock) for part, _ in parts]
        with clock.stage(FUSE):
            return fusion.fuse(rankings, method, weights, id_rank, top_k)

    return answer, fusion.fuse([first for _, first in parts], method, weights, id_rank, top_k)
