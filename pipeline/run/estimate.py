"""What a run takes, scaled from what a smaller or an earlier run measured; and whether it fits here.

Time and bytes of a stage are in proportion to what its `Stage.grows_with` says, and the time of texts to
their tokens. The bytes of vectors and indexes are known by a formula, `Retriever.stored_sizes`; a run checks
these before it encodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.config import SOURCES, Config, FuseConfig
from pipeline.core import machine, records
from pipeline.core.errors import InputError
from pipeline.core.records import ROLES, Facts
from pipeline.core.result_records import Hardware, StageRow, in_part, without_part
from pipeline.models.model import ResolvedModel
from pipeline.models.tokenizer import token_counter
from pipeline.results.folder import read_record
from pipeline.results.records import Manifest, Metrics
from pipeline.retrievers.retriever import COLLECTION, Retriever
from pipeline.run.benchmark import Benchmark, Session
from pipeline.run.plan import SCORES
from pipeline.storage.whole_files import MANIFEST, METRICS

PROBE = {"source": "sample", "corpus": 100, "queries": 20}  # the collection that a probe runs on
SAMPLED_TEXTS = 500  # whose tokens are counted
QUERIES = 1000  # that are taken where it is not known how many there are
OF_TEXTS = ("model", "fuse", "index", "search", "rerank", "engine")
"""Sections of a config that decide how long a text of given length takes."""


class StageEstimate(NamedTuple):
    """What a stage takes; a figure is None where it is not known."""

    seconds: float | None = None
    memory_mb: float | None = None
    disk_bytes: int | None = None
    bytes_per_passage: float | None = None


@dataclass(frozen=True)
class MeasuredRun:
    """What a run of the same config measured on this machine: its stages by role, and of how much."""

    rows: Mapping[str, StageRow]
    passages: int
    queries: int
    origin: str

    @property
    def tokens(self) -> dict[str, float]:
        """By role the mean tokens of a text, where a model counted them."""
        uses = {role: row.encoding for role, row in self.rows.items() if row.encoding}
        return {role: use.tokens / use.texts for role, use in uses.items() if use.tokens and use.texts}


@dataclass(frozen=True)
class RunEstimate:
    """What the stages of a run take that are to be made."""

    passages: int
    queries: int
    stages: dict[str, StageEstimate]  # by role
    keys: dict[str, str]  # likewise, for stages that several benchmarks share
    measured: MeasuredRun | None  # what was scaled; None where nothing was measured
    obstacle: InputError | None  # what this machine lacks

    @property
    def unknown(self) -> list[str]:
        """The roles whose time is not known."""
        return [role for role, stage in self.stages.items() if stage.seconds is None]

    @property
    def total(self) -> StageEstimate:
        """The sums of time and disk of all stages, as far as they are known, and the most memory of one."""
        return sum_stages(self.stages.values())

    def document(self) -> Facts:
        """The estimate as JSON."""
        return {
            "passages": self.passages,
            "queries": self.queries,
            "stages": [{"stage": role, **stage._asdict()} for role, stage in self.stages.items()],
            **{name: value for name, value in self.total._asdict().items() if name != "bytes_per_passage"},
            "unknown": self.unknown,
            "measured": self.measured and {
                "passages": self.measured.passages,
                "queries": self.measured.queries,
                "tokens": self.measured.tokens,
                "by": self.measured.origin,
            },
            "obstacle": self.obstacle.found if self.obstacle else None,
        }  # fmt: skip


def sum_stages(stages: Iterable[StageEstimate]) -> StageEstimate:
    """The sums of time and disk, and the most memory; None where nothing of it is known."""
    known = list(stages)
    seconds = [stage.seconds for stage in known if stage.seconds is not None]
    memory = [stage.memory_mb for stage in known if stage.memory_mb is not None]
    disk = [stage.disk_bytes for stage in known if stage.disk_bytes is not None]
    return StageEstimate(
        sum(seconds) if seconds else None, max(memory, default=None), sum(disk) if disk else None
    )


def estimate(benchmark: Benchmark, passages: int, queries: int, roles: Collection[str]) -> RunEstimate:
    """What the stages of some roles take for a collection of so many texts.

    The time of a text is in proportion to its tokens, where the collection has been read.
    """
    measured = _earlier_run(benchmark) or _probed(benchmark)
    sizes = benchmark.retriever.stored_sizes(passages, queries)
    longer: dict[str, float] = {}
    read = measured and measured.tokens and benchmark.store.find(benchmark.recipes[COLLECTION])
    if measured and read and len(benchmark.collection.passages) == passages:  # not those of a probe
        lengths = dict(_mean_tokens(benchmark.retriever, benchmark.collection))
        longer = {role: lengths[role] / was for role, was in measured.tokens.items() if role in lengths}
        longer["rerank"] = longer.get("passages", 1)
    stages = {}
    for role in roles:
        size = sizes.get(role)
        seconds = memory = None
        disk = size.disk if size else None
        row = measured.rows.get(role) if measured else None
        if measured and row:
            by_passages, by_queries = passages / measured.passages, queries / max(measured.queries, 1)
            grows_with = benchmark.stages[role].grows_with
            items = (row.items or 0) * (by_passages if grows_with == "passages" else by_queries)
            work = items * (by_passages if grows_with == "product" else 1) * longer.get(role, 1)
            if size and size.disk and not benchmark.store.find(benchmark.recipes[role]):
                work *= 1 - min(benchmark.written(role) / size.disk, 1)
            seconds = work / row.items_per_second if row.items_per_second else None
            memory = row.peak_rss_mb
            if disk is None and row.bytes is not None and row.items:
                disk = round(items * row.bytes / row.items)
        if size and size.memory:
            memory = (memory or 0) + size.memory / 1e6
        each = size.passage if size else None
        if each is None and disk and without_part(role) == "index":
            each = disk / passages
        stages[role] = StageEstimate(seconds, memory, disk, each)
    keys = {role: benchmark.recipes[role].key for role in roles}
    return RunEstimate(
        passages, queries, stages, keys, measured, benchmark.obstacle(passages, queries, roles)
    )


def _mean_tokens(
    retriever: Retriever, collection: records.Collection, prefix: str = ""
) -> Iterator[tuple[str, float]]:
    """By role, of each part of a fusion, the tokens that a model reads of a text: the mean of a sample."""
    for number, part in enumerate(retriever.parts, start=1):
        fused = isinstance(retriever.settings, FuseConfig)
        yield from _mean_tokens(part, collection, in_part(number, prefix) if fused else prefix)
    model = None if retriever.parts else getattr(retriever.source, "model", None)
    for role, texts in zip(ROLES, (collection.passages, collection.queries), strict=True):
        if isinstance(model, ResolvedModel) and not (role == "passages" and retriever.config.data.chunks):
            rows = np.unique(np.linspace(0, len(texts) - 1, SAMPLED_TEXTS).astype(np.int64))
            before, after = model.prompts[role]
            sampled = records.take_texts(texts.texts, rows).to_pylist()
            sample = [before + text + after for text in sampled]
            counts = np.array(token_counter(model.tokenizers[role])(sample))
            yield prefix + role, float(np.minimum(counts, model.max_lengths[role]).mean())


def roles_of_run(benchmark: Benchmark) -> list[str]:
    """The stages that a run with an empty cache makes, in order."""
    needed = {benchmark.retriever.ranking, SCORES}
    for role, stage in reversed(benchmark.stages.items()):
        needed |= set(stage.needs) if role in needed else set()
    return [role for role in benchmark.stages if role in needed]


def _earlier_run(benchmark: Benchmark) -> MeasuredRun | None:
    """The result of the config's name, or a kept one, or of another collection, with the same settings."""
    config = benchmark.config
    output, (name, _, collection) = Path(config.output), config.name.partition("/")
    others = [*output.glob(f"{name}~*"), *(output.glob(f"{name}/*") if collection else ())]
    settings = _but_for_data(benchmark.resolved_config.model_dump(mode="json"))
    for folder in (output / config.name, *others):
        try:
            if _but_for_data(read_record(folder, MANIFEST, Manifest).config) != settings:
                continue
            record = read_record(folder, METRICS, Metrics)
        except (InputError, OSError):  # not a result: it is no matter of this run
            continue
        rows = {row.stage: row for row in record.all_stages}
        return _measured(rows, record.passages, record.queries, str(folder))
    return None


def _but_for_data(config: Mapping[str, Any]) -> Facts:
    """The settings that decide how long texts take, chunks included."""
    data: Mapping[str, Any] = config.get("data", {})
    kept = {name: value for name, value in config.items() if name in OF_TEXTS}
    return {**kept, "chunks": data.get("chunks")}


def _probed(benchmark: Benchmark) -> MeasuredRun | None:
    """What `probe` measured."""
    small = on_sample(benchmark.config, benchmark.session)
    artifacts, stages = small.stage_rows()
    if COLLECTION not in artifacts:
        return None
    rows, facts = {row.stage: row for row in stages if row.stage in artifacts}, artifacts[COLLECTION].facts
    return _measured(rows, facts["passages"], facts["queries"], "--probe")


def _measured(rows: Mapping[str, StageRow], passages: int, queries: int, origin: str) -> MeasuredRun | None:
    """The stages that this machine computed; None if it computed none."""
    here = Hardware.model_validate(machine.hardware())
    own = {role: row for role, row in rows.items() if row.hardware == here}
    searched = [row.items for role, row in own.items() if row.items and without_part(role) == "queries"]
    return MeasuredRun(own, passages, max(searched, default=queries), origin) if own else None


def on_sample(config: Config, session: Session) -> Benchmark:
    """The benchmark of a config on a part of the built-in sample, whose keys need no other data."""
    data = SOURCES.make(**PROBE, chunks=config.data.chunks)
    evaluated = config.evaluate.model_copy(update={"cluster": None})
    changes = {"data": data, "evaluate": evaluated, "expected": ()}
    return Benchmark(config.model_copy(update=changes), session)


def probe(config: Config, session: Session) -> None:
    """Run a benchmark on a part of the built-in sample, so that its stages are measured.

    Raises:
        InputError: It does not run on so few passages, or not here.
    """
    small = on_sample(config, session)
    small.check()
    try:
        small.check_collection(alone=False)
    except InputError as error:
        raise InputError(
            f"{config.name} does not run on a sample: {error.found}",
            allowed=f"what runs on {PROBE['corpus']} passages",
            fix="run a part of the collection instead, with --set data.corpus=N: its result is scaled",
        ) from None
    small.ensure(small.retriever.ranking, SCORES)
    session.close_engine()


def shared_total(estimates: Sequence[RunEstimate]) -> StageEstimate:
    """Of several, in which a stage that they share counts once."""
    stages = {each.keys[role]: stage for each in estimates for role, stage in each.stages.items()}
    return sum_stages(stages.values())
