"""Made-up results of one collection and of several, and the commands and tables that tests read and write."""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from workplaces import hits

from pipeline.results import CollectionResult, Manifest, Metrics, Result, SuiteRecord

ONE = {"": 40}
THREE = {"first": 40, "second": 30, "third": 60}
"""Collections and their numbers of queries; a result of one collection has no name for it."""
MEASURES = ("ndcg@10", "mrr")
STAGES = [
    {"stage": "passages", "seconds": 3.5, "items_per_second": 100.0, "bytes": 5},
    {"stage": "queries", "seconds": None, "items_per_second": 300.0, "bytes": 6},
    {"stage": "index", "seconds": None, "items_per_second": None, "bytes": 7},
    {"stage": "search", "seconds": 1.0, "items_per_second": 600.0, "bytes": 8},
]


def result(
    name: str, values: np.ndarray, measures: Sequence[str] = MEASURES, collection: str = "", **record: Any
) -> CollectionResult:
    """A result with these values, float64 [queries, measures], in `results/NAME`."""
    metrics = {
        "name": name, "queries": len(values), "passages": 9, "stages": STAGES,
        "metrics": dict(zip(measures, values.mean(axis=0).tolist(), strict=True)), **record,
    }  # fmt: skip
    manifest = Manifest.model_validate(
        {"recipes": {"evaluate": {}}, "contents": {"qrels": f"of {collection}"}}
    )
    ids = [f"{collection}q{number}" for number in range(len(values))]
    folder = Path("results", name)
    return CollectionResult(folder, Metrics.model_validate(metrics), manifest, ids, list(measures), values)


def single(collection: CollectionResult) -> Result:
    """The result of a benchmark of one collection."""
    return Result(collection.folder, [collection])


def suite(name: str, results: dict[str, CollectionResult], **record: Any) -> Result:
    """A suite of these results, one for each collection."""
    means = [[each.record.metrics[measure] for each in results.values()] for measure in MEASURES]
    written = {
        "name": name, "collections": tuple(results), "keys": {}, "passages": 9 * len(results),
        "queries": sum(len(each.values) for each in results.values()),
        "metrics": dict(zip(MEASURES, np.mean(means, axis=1).tolist(), strict=True)), **record,
    }  # fmt: skip
    collections = [
        replace(each, record=each.record.model_copy(update={"name": collection}))
        for collection, each in results.items()
    ]
    return Result(Path("results", name), collections, SuiteRecord.model_validate(written))


def make(
    name: str, seed: int, better: Sequence[float] = (0, 0, 0), sizes: dict[str, int] = ONE, **record: Any
) -> Result:
    """A result of one collection, or a suite; `better` is added to the values of each collection.

    A query is as hard for all; what else there is differs by the seed.
    """
    hard, *own = map(np.random.default_rng, (0, seed, seed + 1000))
    results = {}
    for (collection, size), more in zip(sizes.items(), better, strict=False):
        shared = hard.normal(0.5, 0.2, size)
        values = np.stack([shared + each.normal(more, 0.17, size) for each in own], axis=1)
        results[collection] = result(name, np.clip(values, 0, 1), collection=collection)
    return suite(name, results, **record) if sizes is not ONE else changed(results[""], **record)


def changed(of_one: CollectionResult | Result, **record: Any) -> Result:
    """A result of one collection whose `metrics.json` has other values."""
    saved = of_one if isinstance(of_one, CollectionResult) else of_one.only_collection()
    metrics = saved.record.model_dump() | record
    return single(replace(saved, record=Metrics.model_validate(metrics)))


def with_values(of_one: Result, values: np.ndarray, name: str = "") -> Result:
    """A result of one collection with other values, float64 [queries, measures], and maybe another name."""
    saved = of_one.only_collection()
    made = result(name or of_one.name, values, saved.measures)
    return single(replace(made, query_ids=saved.query_ids[: len(values)]))


def values_of(of_one: Result) -> np.ndarray:
    """float64 [queries, measures]."""
    return of_one.only_collection().values


def config(folder: Path, name: str, **sections: Any) -> dict[str, Any]:
    """BM25 on the sample, with cache and results in a folder; sections may be others."""
    return {
        "name": name, "data": {"source": "sample"}, "model": {"backend": "bm25"}, "search": {"top_k": 20},
        "evaluate": {"measures": ["ndcg@10", "mrr@10"]}, "cache": str(folder / "indexes"),
        "output": str(folder / "results"), **sections,
    }  # fmt: skip


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a TSV file."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write rows as a TSV file."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    return path


def tops(folder: Path, depth: int) -> dict[str, list[str]]:
    """The first passages of each query of a run, by score."""
    found = defaultdict(list)
    for query, passage, score in hits(folder):
        found[query].append((score, passage))
    return {query: [p for _, p in sorted(every, reverse=True)[:depth]] for query, every in found.items()}


def write_qrels(path: Path, qrels: Mapping[tuple[str, str], int]) -> Path:
    """Write grades of pairs of query and passage as trec_eval reads them."""
    path.write_text("".join(f"{query} 0 {passage} {grade}\n" for (query, passage), grade in qrels.items()))
    return path
