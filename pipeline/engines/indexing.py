"""How is an index built and searched that is cut into shards? Each is an index of its own, over its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import IndexConfig, SearchConfig
from pipeline.core.progress import Bar
from pipeline.core.records import Float32
from pipeline.encoders import Encoder
from pipeline.engines import Part
from pipeline.engines.work import only_texts, save_hits
from pipeline.storage import vector_shards, whole_files
from pipeline.storage.artifacts import Artifact

if TYPE_CHECKING:
    from pipeline.search.searchers import ApproximateSearcher, FlatSearcher


def file_name(shard: int, shards: int) -> str:
    """What the file of a shard is called; an index that is not cut has no number."""
    return f"index-{shard}.faiss" if shards > 1 else "index.faiss"


@dataclass(frozen=True)
class StoredIndex:
    """A finished index on disk, whole or in shards.

    Attributes:
        artifact: Its files.
        rows: Vectors in it.
        dimension: Of each.
    """

    artifact: Artifact
    rows: int
    dimension: int

    def path(self, name: str) -> Path:
        """The path of one of its files."""
        return self.artifact.path(name)

    @property
    def cost(self) -> dict[str, Any]:
        """What it took: seconds to build, and bytes on disk."""
        made = self.artifact.manifest["made"]
        return {"build_seconds": made["seconds"], "disk_bytes": self.artifact.bytes}


def open_index(artifact: Artifact) -> StoredIndex:
    """A finished index; nothing of it is read yet."""
    return StoredIndex(artifact, artifact.facts["rows"], artifact.facts["dimension"])


@dataclass(frozen=True)
class Build:
    """Builds the index of some rows: a Faiss file.

    Attributes:
        passages: The passages' vectors.
        config: The index section.
    """

    passages: Artifact
    config: IndexConfig

    def do(self, encoder: Encoder | None, part: Part, path: Path, bar: Bar) -> None:
        """See `pipeline.engines.Job`.

        Raises:
            InputError: See `pipeline.search.faiss_index.build_index`.
        """
        from pipeline.search import faiss_index

        config, rows = self.config, vector_shards.open_rows(self.passages, *part)
        index = faiss_index.build_index(
            rows, config.factory, config.metric, bar, train_rows=config.train_rows, seed=config.seed
        )
        with whole_files.disk_errors_named(path):
            faiss_index.write_index(index, path)


@dataclass(frozen=True)
class Ask:
    """Finds the best passages of each query in the shard of some rows: `work.HIT` [queries, hits].

    Attributes:
        index: All shards.
        asked: The queries' vectors.
        corpus: The Arrow file of the passages, alone; their ids decide between equal scores.
        config: The index section.
        search: The search section.
    """

    index: Artifact
    asked: Artifact
    corpus: Artifact
    config: IndexConfig
    search: SearchConfig

    def do(self, encoder: Encoder | None, part: Part, path: Path, bar: Bar) -> Any:
        """See `pipeline.engines.Job`."""
        start, stop = part
        ids = only_texts(self.corpus).ids.slice(start, stop - start)
        found = self.searcher(part).search(self.queries(), ids, bar)
        found.passages[found.passages >= 0] += start
        save_hits(path, found)

    def searcher(self, part: Part) -> FlatSearcher | ApproximateSearcher:
        """The shard of some rows, opened."""
        from pipeline.search import searchers

        shards = self.config.shards
        number = vector_shards.split_evenly(self.index.facts["rows"], shards).index(part)
        path = self.index.path(file_name(number, shards))
        return searchers.open_searcher(self.config, self.search, path)

    def queries(self) -> Float32:
        """float32 [queries, dimension]."""
        return vector_shards.read_all_rows(self.asked)


@dataclass(frozen=True)
class Measure(Ask):
    """Measures the shard of some rows; its facts, and its file, are `ApproximateSearcher.measure`."""

    def do(self, encoder: Encoder | None, part: Part, path: Path, bar: Bar) -> dict[str, Any]:
        """See `pipeline.engines.Job`."""
        searcher: Any = self.searcher(part)
        figures: dict[str, Any] = searcher.measure(self.queries())
        path.write_text(json.dumps(figures), encoding="utf-8")
        return figures


def together(shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What shards cost that are asked one after the other: memory and times are the sums of theirs.

    The merge of their hits is not counted, and what one of them does not say is left out.
    """

    def rate(each: Sequence[float]) -> float:
        return round(1 / sum(1 / one for one in each), 1)

    rules: dict[str, Callable[[Sequence[Any]], Any]] = {
        "device": lambda each: ", ".join(sorted(set(each))),
        "memory_mb": lambda each: round(sum(each), 3),
        "threads": min,
        "queries_per_second": rate,
        "queries_per_second_one_thread": rate,
        "latency_ms": lambda each: {name: round(sum(one[name] for one in each), 4) for name in each[0]},
    }
    return {
        name: rule([shard[name] for shard in shards])
        for name, rule in rules.items()
        if all(name in shard for shard in shards)
    }
