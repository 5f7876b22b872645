"""The way of one query through a benchmark: its model, its index, its reranker, loaded once.

The functions are those of a run. What a run does besides, such as looking for known rows and writing
artifacts, is left out, and nothing is cached.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.order import descending_id_rank
from pipeline.core.records import Collection, Qrels, Ranking, from_numpy
from pipeline.core.result_records import in_part
from pipeline.encoders.batching import Usage
from pipeline.metrics.evaluation import ignored_hits
from pipeline.metrics.scoring import drop_hits
from pipeline.retrievers.encoding import EncodingRetriever
from pipeline.retrievers.fused import FUSE, FusionRetriever
from pipeline.retrievers.reranked import RERANK, RerankingRetriever, rerank
from pipeline.retrievers.retriever import COLLECTION, Retriever
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


class QueryPath(ABC):
    """Answers queries one at a time; several threads may call `answer` once all is loaded."""

    stages: list[str]  # the roles of the artifacts that it reads
    first: Ranking  # the answer to the query of `load`, once that has ended

    @abstractmethod
    def load(self, query: str) -> Iterator[str]:
        """Load all parts, and answer one query with each: its first use is a part of loading.

        Yields, after each part, whether it is a `MODEL` or an `INDEX`.
        """

    @abstractmethod
    def answer(self, query: str, clock: Clock) -> Ranking:
        """The ranking of one query."""


def path_of(retriever: Retriever, benchmark: Benchmark, prefix: str = "") -> QueryPath:
    """The path of a retriever whose stages are in the plan of a benchmark under a prefix.

    Raises:
        InputError: It is of a kind whose queries cannot be answered one by one.
    """
    if isinstance(retriever, RerankingRetriever):
        return RerankedPath(retriever, benchmark, path_of(retriever.first, benchmark, prefix))
    if isinstance(retriever, FusionRetriever):
        parts = [
            path_of(part, benchmark, prefix + in_part(number, ""))
            for number, part in enumerate(retriever.parts, start=1)
        ]
        return FusedPath(retriever, benchmark, parts)
    if type(retriever).encode_query is not Retriever.encode_query:
        return TextPath(retriever, benchmark, prefix)
    raise InputError(
        f"{benchmark.config.name}: a {type(retriever).__name__} does not answer queries one by one",
        allowed="dense, sparse, multi-vector and BM25 retrievers, fused and reranked",
        fix="name another result",
    )


def local_lock(retriever: Retriever) -> AbstractContextManager[Any]:
    """A lock for a model of this process, which computes one query at a time; none for a server."""
    source = retriever.source
    return threading.Lock() if source and not source.served else nullcontext()


class TextPath(QueryPath):
    """Tokens, a row, a search."""

    def __init__(self, retriever: Retriever, benchmark: Benchmark, prefix: str) -> None:
        self.retriever, self.benchmark = retriever, benchmark
        needs = retriever.plan()[retriever.ranking].needs
        in_plan = benchmark.stages[prefix + retriever.ranking].needs
        self.roles = {need: role for need, role in zip(needs, in_plan, strict=True) if need != "queries"}
        self.stages = list(self.roles.values())
        self.encodes = isinstance(retriever, EncodingRetriever)
        self.served = retriever.source is not None and retriever.source.served
        self.lock = local_lock(retriever)

    @override
    def load(self, query: str) -> Iterator[str]:
        self._encode = self.retriever.encode_query(self.benchmark.store)
        row = self._encode(query, Usage())
        yield MODEL
        inputs = {role: self.benchmark.opened(stage) for role, stage in self.roles.items()}
        self._search = self.retriever.open_search(inputs)
        collection: Collection = inputs[COLLECTION]
        ignored = ignored_hits(collection, self.retriever.config.data.ignored)
        self._ignored = defaultdict[str, list[int]](list)  # by the text of a query
        texts = collection.queries.texts.take(from_numpy(ignored.queries)).to_pylist()
        for text, passage in zip(texts, ignored.passages.tolist(), strict=True):
            self._ignored[text].append(passage)
        self.first = self._find(query, row)
        yield INDEX

    @override
    def answer(self, query: str, clock: Clock) -> Ranking:
        usage = Usage()
        with self.lock:
            started = time.perf_counter()
            row = self._encode(query, usage)
            seconds = time.perf_counter() - started
        if usage.server:
            clock.retries += usage.server.retries
        if not self.served:
            clock.add(TOKENIZE, usage.tokenize_seconds)
        if self.encodes:
            clock.add(ENCODE, seconds - usage.tokenize_seconds)
        with clock.stage(SEARCH):
            return self._find(query, row)

    def _find(self, query: str, row: Any) -> Ranking:
        passages = np.unique(np.array(self._ignored.get(query, ()), np.int64))
        ignored = Qrels(np.zeros_like(passages), passages, passages)
        with silent("", None, "") as bar:
            return drop_hits(self._search(row, bar), ignored, self.retriever.config.search.top_k)


class RerankedPath(QueryPath):
    """The path of a first stage, whose best passages are scored again."""

    def __init__(self, retriever: RerankingRetriever, benchmark: Benchmark, below: QueryPath) -> None:
        self.retriever, self.benchmark, self.below = retriever, benchmark, below
        self.stages = below.stages
        self.lock = local_lock(retriever)

    @override
    def load(self, query: str) -> Iterator[str]:
        yield from self.below.load(query)
        source = self.retriever.source
        self._scorer = source.connect() if source.served else source.open(self.benchmark.store)
        collection: Collection = self.benchmark.collection
        self._texts = collection.passages.texts
        self._id_rank = descending_id_rank(collection.passages.ids)
        self.first = self._rerank(query, self.below.first, Usage())
        yield MODEL

    @override
    def answer(self, query: str, clock: Clock) -> Ranking:
        ranking = self.below.answer(query, clock)
        usage = Usage()
        with self.lock, clock.stage(RERANK):
            ranking = self._rerank(query, ranking, usage)
        if usage.server:
            clock.retries += usage.server.retries
        return ranking

    def _rerank(self, query: str, ranking: Ranking, usage: Usage) -> Ranking:
        best = ranking.passages[0, : self.retriever.settings.depth]
        rows = best[best >= 0]
        passages = self._texts.take(pa.array(rows)).to_pylist()
        scores = np.full((1, len(best)), -np.inf, np.float32)
        with silent("", None, "") as bar:
            pairs = [(query, passage) for passage in passages]
            scores[0, best >= 0] = self._scorer.score(pairs, usage, bar) if pairs else []
        return rerank(ranking, scores, self._id_rank)


class FusedPath(QueryPath):
    """The paths of several retrievers, one after the other, and their fusion."""

    def __init__(self, retriever: FusionRetriever, benchmark: Benchmark, parts: list[QueryPath]) -> None:
        self.retriever, self.benchmark, self.parts = retriever, benchmark, parts
        self.stages = list(dict.fromkeys(stage for part in parts for stage in part.stages))
        settings = retriever.settings
        self.method = fusion.Fusion(settings.method, settings.normalize, settings.k)
        self.weights = self.method.weights(settings.weights, len(parts))

    @override
    def load(self, query: str) -> Iterator[str]:
        for part in self.parts:
            yield from part.load(query)
        self._id_rank = descending_id_rank(self.benchmark.collection.passages.ids)
        self.first = self._fuse([part.first for part in self.parts])

    @override
    def answer(self, query: str, clock: Clock) -> Ranking:
        rankings = [part.answer(query, clock) for part in self.parts]
        with clock.stage(FUSE):
            return self._fuse(rankings)

    def _fuse(self, rankings: list[Ranking]) -> Ranking:
        top_k = self.retriever.config.search.top_k
        return fusion.fuse(rankings, self.method, self.weights, self._id_rank, top_k)
