"""The engine of this process, its jobs, and which engine a config asks for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import tee
from typing import TYPE_CHECKING

from typing_extensions import override

from pipeline.config import EngineConfig, IndexConfig, SearchConfig
from pipeline.core import machine
from pipeline.core.display import Bar, counted
from pipeline.core.errors import InputError
from pipeline.core.installation import require
from pipeline.core.records import Embeddings, Float32, Ranking, Role, TextPair, UInt8
from pipeline.encoders.batching import Usage
from pipeline.encoders.encoder import Encoder
from pipeline.encoders.opener import ModelSource, Opener, Scorer
from pipeline.engines.base import Content, Engine, Job, Part, PartResult
from pipeline.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(eq=False)
class LocalEngine(Engine):
    """This process does one part after the other; `open_model` loads the model, if a job needs one."""

    kind = "local"
    workers = 1
    open_model: Callable[[], Content] | None = None
    _model: Content = field(default=None, init=False)

    @override
    def load(self, parts: int) -> None:
        if self._model is None and self.open_model:
            self._model = self.open_model()

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


def score(parts: Iterator[list[TextPair]], scorer: Scorer, bar: Bar) -> Iterator[tuple[Float32, Usage]]:
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
    from pipeline.search import faiss_index

    stored, ids = searched
    return faiss_index.open_searcher(index, search, stored, ids).search(queries, search.top_k, bar)


@dataclass(frozen=True)
class EngineFactory:
    """Opens an engine; equal ones open the same, as a session resolves equal sections once."""

    source: ModelSource | None  # what its workers load, or ask; None if they need no model
    config: EngineConfig | None  # the kind of engine; None where the server of `source` is asked

    def __call__(self, store: Store) -> Engine:
        """Open the engine; what a backend converts is in `store`.

        Raises:
            InputError: As of `pipeline.engines.ray.RayEngine`.
        """
        source, config = self.source, self.config
        opener = source if isinstance(source, Opener) else None
        if source and config is None:
            return ServerEngine(partial(source.open, store))
        if source and config and config.kind == "ray":
            from pipeline.engines.ray import RayEngine

            return RayEngine(config, opener, store)
        if opener is None or config is None:
            return LocalEngine()
        devices = devices_of(config, opener)
        if len(devices) == 1:
            placed = replace(opener, model=replace(opener.model, device=devices[0]))
            return LocalEngine(partial(placed.open, store))
        from pipeline.engines.processes import ProcessEngine

        return ProcessEngine(devices, opener, store)


def devices_of(config: EngineConfig, opener: Opener) -> list[str]:
    """What each process of the engine `local` computes on, such as `cuda:0` and `cuda:1`, or `cpu` twice."""
    if config.devices:
        return config.devices
    if not opener.model.device.startswith("cuda"):
        return [opener.model.device] * (config.workers or 1)
    if str(opener.settings.device).startswith("cuda:"):  # one GPU is named: no other may be used
        return [opener.model.device]
    return [f"cuda:{number}" for number in range(config.workers or len(machine.gpus()) or 1)]


def check_engine(config: EngineConfig, source: ModelSource) -> None:
    """Refuse an engine that cannot start on this machine, and settings that a server cannot be asked with.

    Nothing is started or asked. The config refuses what fits no machine.
    """
    if source.served:
        source.check()
    if config.kind == "ray":
        require("ray", "ray", "engine.kind: ray")
    elif isinstance(source, Opener) and (config.workers or config.devices):
        _check_devices(config, source)


def _check_devices(config: EngineConfig, source: Opener) -> None:
    """Refuse processes on devices of another kind than the model's, or on GPUs that are not there."""
    name, value = ("workers", config.workers) if config.workers else ("devices", config.devices)
    section = source.model.section
    kinds = {device.partition(":")[0] for device in config.devices or [source.model.device]}
    if kinds != {source.model.device.partition(":")[0]}:
        raise InputError(
            f"engine.{name}: {value}, and {section}.device is {source.model.device}",
            allowed="the same kind of device for both",
            fix=f"set {section}.device to {kinds.pop()}",
        )
    check_gpus(f"engine.{name}: {value}", devices_of(config, source), f"{section}.device")


def check_gpus(setting: str, devices: Sequence[str], device: str) -> None:
    """Refuse GPUs, such as `cuda:1`, that this machine does not have, without importing torch.

    `setting` asks for them, and `device` is the setting that could name the CPU.
    """
    numbers = [int(name.partition(":")[2] or 0) for name in devices if name.startswith("cuda")]
    if numbers and max(numbers) >= (count := len(machine.gpus())):
        raise InputError(
            f"{setting}, and this machine has {counted(count, 'GPU')}",
            allowed=", ".join(f"cuda:{number}" for number in range(count)) or "cpu",
            fix="name GPUs that it has" if count else f"set {device} to cpu",
        )
