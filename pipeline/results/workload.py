"""What the run of a benchmark would do, as a record: its models, what must be fetched, encoded and scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.core.display import counted, duration, rate
from pipeline.run.benchmark import Benchmark


@dataclass(frozen=True)
class Rate:
    """How fast passages were encoded here, or pairs scored, by the same model with the same settings.

    Attributes:
        per_second: Passages or pairs per second.
        passages: How many there were then.
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
        pairs: How many pairs of a query and a passage must be scored by rerankers, at most; None if it is not
            known.
        pair_rate: None if no pairs were scored like this here.
        models: Each model's `name`, `backend` and `precision`, and whether that was left to `auto`.
    """

    name: str
    stages: Sequence[dict[str, Any]]
    fetch: dict[tuple[str, str], int] = field(default_factory=dict)
    unknown: str = ""
    passages: int | None = None
    encode: int | None = None
    rate: Rate | None = None
    pairs: int | None = 0
    pair_rate: Rate | None = None
    models: Sequence[dict[str, Any]] = ()

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
            "pairs": self.pairs,
            "pairs_per_second": self.pair_rate.per_second if self.pair_rate else None,
            "models": list(self.models),
        }

    def work(self) -> list[str]:
        """What takes long, a sentence each without its full stop: texts to encode, and pairs to score."""
        said = []
        if self.encode is None:
            unread = "the collection is read" if self.passages is None else "passages are cut"
            said.append(f"To be encoded: not known before {unread}")
        elif self.encode:
            said.append(f"To be encoded: {_work(self.encode, 'passage', self.rate)}")
        if self.pairs is None:
            said.append("Pairs to be scored: not known before the collection is read")
        elif self.pairs:
            said.append(f"To be reranked: at most {_work(self.pairs, 'pair', self.pair_rate)}")
        return said


def _work(count: int, what: str, pace: Rate | None) -> str:
    """How many there are to do, and how long that takes."""
    todo = counted(count, what)
    if pace is None:
        return f"{todo}; how long that takes is known once this model has done some here"
    time = duration(count / pace.per_second)
    shown = f"{rate(pace.per_second)} {what}s/s, as {counted(pace.passages, what)} took here"
    return f"{todo}, in about {time} at {shown}"


def models_used(benchmark: Benchmark) -> list[dict[str, Any]]:
    """What runs each model of a benchmark, and whether that was left to `auto`."""
    return [
        {
            "name": section.label,
            "backend": section.backend,
            "precision": benchmark.identities.resolve(section).precision,
            "auto": section.taken_by_auto,
        }
        for section in benchmark.settled.models
    ]
