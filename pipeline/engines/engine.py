"""Jobs, which are functions of arrays, and engines, which run a job on each of many parts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import tee
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from typing_extensions import override

from pipeline.config import IndexConfig, SearchConfig
from pipeline.core.display import Bar
from pipeline.core.records import Embeddings, Float32, Ranking, Role, UInt8
from pipeline.encoders.batching import Usage
from pipeline.encoders.opener import Encoder, Scorer

if TYPE_CHECKING:
    import pyarrow as pa

Content: TypeAlias = Any
"""A job's inputs or outputs, or the model that it uses: of whatever type the job has."""
Job = Callable[[Iterator[Content], Content, Bar], Iterator[Content]]
"""Computes the outputs of parts from their inputs, in their order; arrays of the inputs may be read-only.

A job is also given the worker's model, an `Encoder` or a `Scorer`, None before `Engine.load`, and a bar to
advance as rows are done. It can be pickled, and holds the settings and the arrays that all parts share.
"""


@dataclass(frozen=True)
class PartJob:
    """A job that computes each part by itself, without a model."""

    function: Callable[[Content, Bar], Content]

    def __call__(self, inputs: Iterator[Content], model: Content, bar: Bar) -> Iterator[Content]:
        """The outputs of each part; see `Job`."""
        return (self.function(each, bar) for each in inputs)


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive rows that a job is run on at once."""

    start: int
    stop: int
    # Gives the job's inputs. It is called in this process, when a worker will soon be free.
    read: Callable[[], Content]


@dataclass(frozen=True)
class PartResult:
    """A finished part, what the job returned, and the name of the machine that ran it."""

    part: Part
    outputs: Content
    node: str


class Engine(Protocol):
    """Runs jobs."""

    kind: str  # the engine's name in the config
    workers: int  # how many parts are done at once

    def load(self, parts: int) -> None:
        """Load the model on at least one worker, and at most one for each of `parts` parts.

        It comes before texts are encoded, so that loading is not timed.
        """
        ...

    def start(self, parts: int) -> None:
        """Start workers, at most one for each of `parts` parts, and wait for the first; without the model.

        It comes before other jobs, so that the start of processes is not timed.
        """
        ...

    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        """Run a job on each part, and advance `bar`; every part is yielded once, in any order.

        Parts are taken from `parts` when workers will soon be free: their size may follow the speed so far.
        """
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...


class LocalEngine(Engine):
    """This process does one part after the other; `open_model` loads the model, if a job needs one."""

    kind = "local"
    workers = 1

    def __init__(self, open_model: Callable[[], Content] | None = None) -> None:
        self._open_model = open_model
        self._model: Content = None

    @override
    def load(self, parts: int) -> None:
        if self._model is None and self._open_model:
            self._model = self._open_model()

    @override
    def start(self, parts: int) -> None:
        """Do nothing: this process is the worker."""

    @override
    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        to_read, to_return = tee(parts)  # a job may read parts ahead
        done = job((part.read() for part in to_read), self._model, bar)
        for outputs, part in zip(done, to_return, strict=False):
            yield PartResult(part, outputs, "local")

    @override
    def close(self) -> None:
        self._model = None


class ServerEngine(LocalEngine):
    """This process asks a server, for two parts at a time; `open_model` opens what has a method `close`.

    A part ends with few requests under way. Those of the next part are sent meanwhile, so that the server
    always has as many as it is meant to have.
    """

    workers = 2

    @override
    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        under_way = deque[tuple[Part, Future[Content]]]()
        with ThreadPoolExecutor(self.workers) as threads:
            try:
                for part in parts:
                    outputs = job(iter([part.read()]), self._model, bar)
                    under_way.append((part, threads.submit(next, outputs)))
                    if len(under_way) == self.workers:
                        yield _done(*under_way.popleft())
                while under_way:
                    yield _done(*under_way.popleft())
            except BaseException:
                self.close()  # or the threads would wait for their answers
                raise

    @override
    def close(self) -> None:
        if self._model is not None:
            self._model.close()
        self._model = None


def _done(part: Part, outputs: Future[Content]) -> PartResult:
    return PartResult(part, outputs.result(), "local")


def encode(
    role: Role, parts: Iterator[list[str]], encoder: Encoder, bar: Bar
) -> Iterator[tuple[Content, Usage]]:
    """The rows a model produces for the texts of each part, and what they cost."""
    return encoder.encode_parts(parts, role, bar)


def score(
    parts: Iterator[list[tuple[str, str]]], scorer: Scorer, bar: Bar
) -> Iterator[tuple[Float32, Usage]]:
    """Scores float32 [pairs] of the queries and passages of each part, and what they cost."""
    for pairs in parts:
        usage = Usage()
        yield scorer.score(pairs, usage, bar), usage


def build_index(index: IndexConfig, vectors: Embeddings, bar: Bar) -> UInt8:
    """The Faiss index of one shard's vectors, as the bytes of its file."""
    from pipeline.search import faiss_index
    from pipeline.search.faiss_library import faiss

    made = faiss_index.build_index(vectors, index.factory, index.metric, bar, seed=index.seed)
    return faiss.serialize_index(made)


def search_part(
    queries: Float32,
    index: IndexConfig,
    search: SearchConfig,
    searched: tuple[Embeddings | UInt8, pa.ChunkedArray],
    bar: Bar,
) -> Ranking:
    """The best passages of each query, float32 [queries, dimension], in one part of what is searched.

    `searched` are stored vectors, or the bytes of the file of an index's shard; and the part's ids, Arrow
    strings. Passages are given by their row in the part.
    """
    from pipeline.search import searchers

    stored, ids = searched
    return searchers.open_searcher(index, search, stored).search(queries, search.top_k, ids, bar)
