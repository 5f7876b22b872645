"""A benchmark of token vectors, from files to hits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.api import run_benchmark
from pipeline.comparison.side_by_side import compare
from pipeline.config.files import load_config
from pipeline.core.errors import InputError
from pipeline.core.records import Array
from pipeline.storage import ragged_shards

CONFIG = """
name: t
data: {source: beir, path: SAMPLE}
model: {backend: precomputed, output: multivector, passages: p.npz, queries: q.npz, shard_rows: 100}
search: {top_k: 20}
evaluate: {measures: [ndcg@10]}
"""


@pytest.fixture
def workplace(tmp_path: Path, root: Path) -> Path:
    """A config, and token vectors of the sample's texts, drawn at random."""
    sample = root / "pipeline" / "data" / "sample"
    (tmp_path / "c.yaml").write_text(CONFIG.replace("SAMPLE", str(sample)), encoding="utf-8")
    for seed, (name, file) in enumerate([("p", "corpus.jsonl"), ("q", "queries.jsonl")]):
        texts = len((sample / file).read_text(encoding="utf-8").splitlines())
        generator = np.random.default_rng(seed)
        ends = np.cumsum(generator.integers(1, 12, texts))
        vectors = generator.standard_normal((ends[-1], 16)).astype(np.float32)
        save(tmp_path / f"{name}.npz", vectors / np.linalg.norm(vectors, axis=1, keepdims=True), ends)
    return tmp_path


def save(path: Path, vectors: Array, ends: Array) -> None:
    np.savez(path, vectors=vectors, ends=ends)


def run(folder: Path, *settings: str, cache: str = "indexes") -> dict[str, Any]:
    """The stages' rows of one run, by name."""
    places = [f"cache={folder / cache}", f"output={folder / 'results'}"]
    result = run_benchmark(load_config(folder / "c.yaml", [*places, *settings]))
    return {row.stage: row for row in result.record.stages}


def hits(folder: Path) -> list[tuple[str, str, float]]:
    """Query, passage and score of each hit, in the order of the run file."""
    lines = (folder / "results" / "t" / "run.trec").read_text(encoding="utf-8").splitlines()
    return [(query, passage, float(score)) for query, _, passage, _, score, _ in map(str.split, lines)]


def texts_of(path: Path) -> list[Array]:
    with np.load(path) as stored:
        bounds = [0, *stored["ends"].tolist()]
        return [stored["vectors"][a:b].astype(np.float64) for a, b in itertools.pairwise(bounds)]


def test_hits_are_those_of_brute_force_and_memory_changes_none(workplace: Path) -> None:
    rows = run(workplace)
    assert list(rows) == ["data", "passages", "queries", "search", "evaluate"]
    found = hits(workplace)
    passages, queries = texts_of(workplace / "p.npz"), texts_of(workplace / "q.npz")
    scores = [
        sorted((float((query @ passage.T).max(axis=1).sum()) for passage in passages), reverse=True)[:20]
        for query in queries
    ]
    np.testing.assert_allclose([score for _, _, score in found], np.ravel(scores), rtol=1e-6)
    run(workplace, "search.memory_mb=64", cache="other")
    assert hits(workplace) == found


def test_the_mean_is_the_sum_over_the_query_s_tokens(workplace: Path) -> None:
    run(workplace)
    sums = hits(workplace)
    rows = run(workplace, "model.score=mean")
    assert [name for name, row in rows.items() if not row.reused] == ["search", "evaluate"]
    tokens = np.repeat([len(query) for query in texts_of(workplace / "q.npz")], 20)
    means = hits(workplace)
    assert [hit[:2] for hit in means] == [hit[:2] for hit in sums]
    np.testing.assert_allclose([hit[2] for hit in means] * tokens, [hit[2] for hit in sums], rtol=1e-6)


def test_what_is_stored_in_fp16_takes_half_the_space(workplace: Path) -> None:
    whole, halves = run(workplace), run(workplace, "model.token_precision=fp16")
    assert [name for name, row in halves.items() if row.reused] == ["data", "queries"]
    assert halves["passages"].bytes < 0.6 * whole["passages"].bytes
    (entry,) = compare([workplace / "results" / "t"]).results
    assert entry.index_bytes == halves["passages"].bytes  # there is no index


def test_an_interrupted_run_loses_one_shard(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    save_rows = ragged_shards.save_rows

    def interrupted(draft: Any, start: int, rows: Any) -> None:
        if len(saved) == 2:
            raise KeyboardInterrupt
        saved.append(start)
        save_rows(draft, start, rows)

    monkeypatch.setattr(ragged_shards, "save_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(workplace)
    monkeypatch.setattr(
        ragged_shards, "save_rows", lambda *given: saved.append(given[1]) or save_rows(*given)
    )
    run(workplace)
    assert saved == [0, 100, 200, 300, 0, 100]  # passages, of which two shards were whole; then queries
    found = hits(workplace)
    run(workplace, cache="other")
    assert hits(workplace) == found


def without_a_text(vectors: Array, ends: Array) -> tuple[Array, Array]:
    return vectors[: ends[-2]], ends[:-1]


def with_an_empty_text(vectors: Array, ends: Array) -> tuple[Array, Array]:
    return vectors, np.concatenate([ends[:1], ends[:1], ends[2:]])


def with_nan(vectors: Array, ends: Array) -> tuple[Array, Array]:
    vectors[7, 3] = np.nan
    return vectors, ends


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_a_text, "rows"),
        (with_an_empty_text, "do not cut"),
        (lambda vectors, ends: (vectors[:-1], ends), "do not cut"),
        (lambda vectors, ends: (vectors, ends.astype(float)), "do not cut"),
        (lambda vectors, ends: (vectors.ravel(), ends), "has no token vectors"),
        (lambda vectors, ends: (vectors[:, :15], ends), "dimensions"),
        (with_nan, "NaN"),
    ],
)
def test_files_that_fit_nothing_are_refused(
    workplace: Path, change: Callable[[Array, Array], tuple[Array, Array]], said: str
) -> None:
    with np.load(workplace / "p.npz") as stored:
        changed = change(stored["vectors"].copy(), stored["ends"])
    save(workplace / "p.npz", *changed)
    with pytest.raises(InputError, match=said):
        run(workplace)
    assert not (workplace / "results").exists()


def test_vectors_by_columns_and_in_compressed_files_are_read_as_they_are(workplace: Path) -> None:
    run(workplace)
    found = hits(workplace)
    with np.load(workplace / "p.npz") as stored:
        vectors, ends = stored["vectors"], stored["ends"]
    save(workplace / "p.npz", np.asfortranarray(vectors), ends)
    run(workplace)
    assert hits(workplace) == found
    np.savez_compressed(workplace / "p.npz", vectors=vectors, ends=ends)
    run(workplace)
    assert hits(workplace) == found


def test_settings_of_an_index_are_refused(workplace: Path) -> None:
    with pytest.raises(InputError, match="without a Faiss index"):
        run(workplace, "index.factory=HNSW32")
