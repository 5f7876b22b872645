"""What a run would do: what is cached, what must be fetched and encoded, and how long that takes.

Nothing is computed, and nothing is fetched but small files that say what a repository holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.config import SOURCES
from pipeline.core import hub, machine
from pipeline.core.errors import InputError
from pipeline.core.records import Chunks, Collection, Texts
from pipeline.retrievers import shared
from pipeline.retrievers.known_rows import find_known_rows
from pipeline.runner import Benchmark
from pipeline.storage import text_table
from pipeline.storage.artifacts import Recipe

ENCODED = "passages"  # the stage, of every kind of retriever that has one, that encodes the passages
TEXTS = "texts"  # its ingredient that says which


@dataclass(frozen=True)
class Rate:
    """How fast passages were encoded here, by the same model with the same settings.

    Attributes:
        per_second: Passages per second.
        passages: How many were encoded then.
    """

    per_second: float
    passages: int


@dataclass(frozen=True)
class Forecast:
    """What the run of one benchmark would do.

    Attributes:
        name: Of the benchmark.
        stages: Each reported stage's `stage`, `key` and `exists`; empty where keys cannot be known yet.
        fetch: By repository and path, the bytes of the files that must be fetched.
        unknown: Why what must be fetched cannot be said; "" if it can.
        passages: Passages of the collection; None if that is not known before it is read.
        encode: How many passages, or chunks of them, must be encoded, at most; None if it is not known.
        rate: None if nothing was encoded like this here.
    """

    name: str
    stages: Sequence[dict[str, Any]]
    fetch: dict[tuple[str, str], int] = field(default_factory=dict)
    unknown: str = ""
    passages: int | None = None
    encode: int | None = None
    rate: Rate | None = None

    @property
    def seconds(self) -> float | None:
        """How long encoding takes; None if it is not known."""
        if self.encode == 0:
            return 0.0
        return self.encode / self.rate.per_second if self.encode and self.rate else None

    @property
    def repositories(self) -> list[str]:
        """The repositories that files must be fetched from."""
        return list(dict.fromkeys(repository for repository, _ in self.fetch))

    def document(self) -> dict[str, Any]:
        """The forecast as JSON."""
        return {
            "name": self.name,
            "stages": list(self.stages),
            "fetch": {
                "files": len(self.fetch),
                "bytes": sum(self.fetch.values()),
                "repositories": self.repositories,
                "unknown": self.unknown or None,
            },
            "passages": self.passages,
            "encode": self.encode,
            "items_per_second": self.rate.per_second if self.rate else None,
            "seconds": self.seconds,
        }


def forecast_each(benchmarks: Iterable[tuple[Benchmark, int | None]]) -> list[Forecast]:
    """Forecasts of benchmarks that run one after the other; what several share is counted for the first.

    A hub that cannot be reached is asked once for all.

    Args:
        benchmarks: Each with the number of passages that a suite states, or None.
    """
    fetched: set[tuple[str, str]] = set()
    encoded: set[str] = set()
    with hub.asked_once():
        return [_forecast(benchmark, stated, fetched, encoded) for benchmark, stated in benchmarks]


def _forecast(
    benchmark: Benchmark, stated: int | None, fetched: set[tuple[str, str]], encoded: set[str]
) -> Forecast:
    """The forecast of one; `fetched` and `encoded` hold what those before it do, and are added to."""
    config, name = benchmark.config, benchmark.config.name
    passages = _within(config.data.passages_kept, stated)
    try:
        identity = benchmark.identities.collection(config.data)
        collection = shared.collection_stage(config, identity).recipe({})
        stages = benchmark.plan()
    except hub.NotHereError as error:
        encode, rate = _encoding_unseen(benchmark, passages)
        return Forecast(name, [], {}, str(error), passages, encode, rate)
    if all(stage["exists"] for stage in stages) or benchmark.searched:
        return Forecast(name, stages, passages=_read_passages(benchmark, collection) or passages, encode=0)
    lacking, unknown = _lacking(_probes(benchmark, collection, identity.passages["corpus"]))
    fetch = {file: size for file, size in lacking.items() if file not in fetched}
    fetched |= fetch.keys()
    read = _read_passages(benchmark, collection)
    passages = passages if read is None else read
    encode, rate = _encoding(benchmark, passages, encoded)
    return Forecast(name, stages, fetch, unknown, passages, encode, rate)


def _within(limit: int | None, stated: int | None) -> int | None:
    return stated if limit is None or stated is None else min(limit, stated)


def _read_passages(benchmark: Benchmark, collection: Recipe) -> int | None:
    """The passages of a collection that has been read."""
    artifact = benchmark.store.find(collection)
    return int(artifact.facts["passages"]) if artifact else None


def _probes(benchmark: Benchmark, collection: Recipe, corpus: dict[str, Any]) -> list[Callable[[], object]]:
    """Functions that open the files which the run would need and that may be on the hub."""
    probes: list[Callable[[], object]] = [
        model.files.folder for model in benchmark.retriever.models() if model.files.repo
    ]
    if "dataset" in corpus and benchmark.store.find(collection) is None:
        source = benchmark.config.data.open()
        probes += [source.size, lambda: next(iter(source.queries()), None), source.judgments]
    return probes


def _lacking(probes: Iterable[Callable[[], object]]) -> tuple[dict[tuple[str, str], int], str]:
    """The files that are not on this machine, and why they cannot be named."""
    files: dict[tuple[str, str], int] = {}
    with hub.only_looking():
        for probe in probes:
            try:
                probe()
            except hub.NotHereError as error:
                files |= error.files
                if not error.files:
                    return files, str(error)
            except InputError as error:
                return files, str(error)
    return files, ""


def _encoding(
    benchmark: Benchmark, passages: int | None, encoded: set[str]
) -> tuple[int | None, Rate | None]:
    """How many passages or chunks all parts of the retriever must encode, and the rate of the slowest."""
    total, rates = 0, []
    if not benchmark.retriever.models():
        return 0, None  # vectors from files, or none
    for role, stage in benchmark.stages.items():
        recipe = benchmark.recipe(role) if stage.name == ENCODED else None
        if recipe is None or not {TEXTS, "model"} <= recipe.plain.keys():
            continue
        if recipe.key in encoded or benchmark.store.find(recipe):
            continue
        encoded.add(recipe.key)
        texts = _texts(benchmark, stage.needs[0])
        if texts is None and (passages is None or stage.needs[0] != shared.COLLECTION):
            return None, None  # how many chunks there are is not known before passages are cut
        rates.append(_rate(benchmark, recipe))
        total += _unknown_texts(benchmark, recipe, texts) if texts else passages or 0
    known = [rate for rate in rates if rate]
    slowest = min(known, key=lambda rate: rate.per_second) if known and len(known) == len(rates) else None
    return total, slowest


def _encoding_unseen(benchmark: Benchmark, passages: int | None) -> tuple[int | None, Rate | None]:
    """As `_encoding`, of a collection whose keys cannot be known: the rate is that on the built-in sample."""
    sample = benchmark.config.model_copy(update={"data": SOURCES.make(source="sample")})
    twin = Benchmark(sample, benchmark.store, benchmark.identities)
    try:
        if not twin.retriever.models():
            return 0, None
        recipes = [twin.recipe(role) for role, stage in twin.stages.items() if stage.name == ENCODED]
    except InputError:
        return passages, None  # the model is not here either
    return passages, _rate(twin, recipes[0]) if len(recipes) == 1 else None


def _rate(benchmark: Benchmark, recipe: Recipe) -> Rate | None:
    """The rate of the largest artifact that was made here by the same model with the same settings."""
    here, found = machine.hardware(), []
    itself = benchmark.store.find(recipe)
    for artifact in (*([itself] if itself else []), *benchmark.store.find_alike(recipe, TEXTS)):
        made = artifact.manifest["made"]
        if made.get("hardware") == here and made.get("items_per_second"):
            found.append(Rate(made["items_per_second"], made["items"] - made.get("found", 0)))
    return max(found, key=lambda rate: rate.passages, default=None)


def _texts(benchmark: Benchmark, role: str) -> Texts | None:
    """The passages of a collection that has been read, or their chunks if they have been cut."""
    artifact = benchmark.store.find(benchmark.recipe(role))
    if artifact is None:
        return None
    opened: Collection | Chunks = benchmark.stages[role].open(artifact)
    return opened.texts if isinstance(opened, Chunks) else opened.passages


def _unknown_texts(benchmark: Benchmark, recipe: Recipe, texts: Texts) -> int:
    """How many of some texts are in no artifact of the same model."""
    alike = benchmark.store.find_alike(recipe, TEXTS)
    if not alike:
        return len(texts)
    hashes = text_table.hash_texts(texts.texts)
    return int(find_known_rows(alike, hashes, np.ones(len(texts), np.bool_)).new.sum())
