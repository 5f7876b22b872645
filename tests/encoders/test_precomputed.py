"""Vectors people already have, taken through index, search and measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.api import run_benchmark
from pipeline.config.files import load_config
from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Float32
from pipeline.encoders.precomputed import PrecomputedVectors
from pipeline.runner import Benchmark
from pipeline.storage import vector_shards
from pipeline.storage.store import Store


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, bge_folder: Path
) -> tuple[dict[str, Any], Float32, Float32]:
    """The metrics of a model on the sample, and its vectors."""
    folder = tmp_path_factory.mktemp("made")
    text = f"name: m\ndata: {{source: sample}}\nmodel: {{name: {bge_folder}, backend: openvino}}\n"
    (folder / "m.yaml").write_text(text, encoding="utf-8")
    config = load_config(folder / "m.yaml", [f"cache={folder}/i", f"output={folder}/r"])
    metrics = run_benchmark(config).metrics
    benchmark = Benchmark(config, Store(Path(config.cache)))
    passages = benchmark.opened("passages")
    return metrics, vector_shards.read_rows(passages, 0, len(passages)), benchmark.opened("queries")


def run(folder: Path, passages: object, queries: object, *settings: str) -> dict[str, Any]:
    np.save(folder / "p.npy", passages)  # type: ignore[arg-type]
    np.save(folder / "q.npy", queries)  # type: ignore[arg-type]
    text = (
        "name: p\ndata: {source: sample}\n"
        "model: {backend: precomputed, passages: p.npy, queries: q.npy, shard_rows: 100}\n"
    )
    (folder / "p.yaml").write_text(text, encoding="utf-8")
    sets = [f"cache={folder}/i", f"output={folder}/r", *settings]
    return run_benchmark(load_config(folder / "p.yaml", sets)).metrics


def test_the_model_s_own_vectors_give_the_model_s_measures(
    made: tuple[dict[str, Any], Float32, Float32], tmp_path: Path
) -> None:
    metrics, passages, queries = made
    assert run(tmp_path, passages, queries)["metrics"] == metrics["metrics"]
    again = run(tmp_path, passages, queries)
    assert all(stage["reused"] for stage in again["stages"])
    changed = queries.copy()
    changed[0] = passages[0]
    remade = [stage["stage"] for stage in run(tmp_path, passages, changed)["stages"] if not stage["reused"]]
    assert remade == ["queries", "search", "evaluate"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_are_taken(
    made: tuple[dict[str, Any], Float32, Float32], tmp_path: Path, dtype: type
) -> None:
    passages, queries = (array.astype(dtype) for array in made[1:])
    scored = run(tmp_path, passages, queries)["metrics"]
    assert run(tmp_path, passages.astype(np.float32), queries.astype(np.float32))["metrics"] == scored


def with_row(array: Float32, row: int, value: float) -> Float32:
    spoilt = array.copy()
    spoilt[row] = value
    return spoilt


BAD = [
    ("rows", lambda p, q: (p[:-1], q), "has 344 rows"),
    ("order", lambda p, q: (q, p), "has 114 rows"),
    ("dimensions", lambda p, q: (p, q[:, :-1]), "128 dimensions and model.queries 127"),
    ("integers", lambda p, q: ((p * 9).astype(int), q), "int64"),
    ("one row", lambda p, q: (p[0], q), "shape [128]"),
    ("objects", lambda p, q: (np.array([{}, {}]), q), "not a .npy file"),
    ("nan", lambda p, q: (with_row(p, 3, np.nan), q), "holds NaN or infinity"),
    ("zeros", lambda p, q: (with_row(p, 200, 0), q), "row 200"),
    ("lengths", lambda p, q: (p * 2, q), "has length 2, and with model.normalize it should be 1"),
]


@pytest.mark.parametrize(("spoil", "expected"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_vectors_that_do_not_fit_are_refused(
    made: tuple[dict[str, Any], Float32, Float32], tmp_path: Path, spoil: Any, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        run(tmp_path, *spoil(made[1], made[2]))
    assert expected in str(caught.value)
    assert not (tmp_path / "r").exists()


def test_a_missing_file_is_refused_by_its_key(tmp_path: Path) -> None:
    text = "name: p\ndata: {source: sample}\nmodel: {backend: precomputed, passages: none.npy}\n"
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"model\.passages: no file"):
        Benchmark(load_config(tmp_path / "p.yaml"), Store(tmp_path)).check()
    half = load_config(tmp_path / "p.yaml", [f"model.passages={tmp_path}/p.yaml"])
    with pytest.raises(InputError, match=r"model\.queries: is not given"):
        Benchmark(half, Store(tmp_path)).check()


def test_no_more_of_given_vectors_is_held_than_a_shard(tmp_path: Path) -> None:
    rows, shard = 40_000, 2_000
    np.save(tmp_path / "p.npy", np.ones((rows, 256), np.float32))  # 41 MB
    column = pa.chunked_array([pa.array(["x"] * rows)])
    given = PrecomputedVectors({"passages": tmp_path / "p.npy", "queries": tmp_path / "p.npy"})
    before = machine.resident_mb()
    for start in range(0, rows, shard):
        given.take("passages", range(start, start + shard), column.slice(start, shard))
    assert machine.resident_mb() - before < 20
