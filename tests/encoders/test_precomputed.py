"""Vectors people already have, taken through index, search and measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline import api
from pipeline.api import run_benchmark
from pipeline.config import Config
from pipeline.config.files import load_config
from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Float32
from pipeline.encoders.precomputed import PrecomputedVectors
from pipeline.formats.npy import map_vectors
from pipeline.run.benchmark import Benchmark
from pipeline.storage import hashing, vector_shards
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
    return run_benchmark(write(folder, passages, queries, *settings)).metrics


def remade(metrics: dict[str, Any]) -> list[str]:
    return [stage["stage"] for stage in metrics["stages"] if not stage["reused"]]


def write(folder: Path, passages: object, queries: object, *settings: str) -> Config:
    """Write vectors and a config of them."""
    np.save(folder / "p.npy", passages)  # type: ignore[arg-type]
    np.save(folder / "q.npy", queries)  # type: ignore[arg-type]
    text = (
        "name: p\ndata: {source: sample}\n"
        "model: {backend: precomputed, passages: p.npy, queries: q.npy, shard_rows: 100}\n"
    )
    (folder / "p.yaml").write_text(text, encoding="utf-8")
    sets = [f"cache={folder}/i", f"output={folder}/r", *settings]
    return load_config(folder / "p.yaml", sets)


def test_the_model_s_own_vectors_give_the_model_s_measures(
    made: tuple[dict[str, Any], Float32, Float32], tmp_path: Path
) -> None:
    metrics, passages, queries = made
    assert run(tmp_path, passages, queries)["metrics"] == metrics["metrics"]
    again = run(tmp_path, passages, queries)
    assert all(stage["reused"] for stage in again["stages"])
    changed = queries.copy()
    changed[0] = passages[0]
    assert remade(run(tmp_path, passages, changed)) == ["queries", "search", "evaluate"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_are_taken(
    made: tuple[dict[str, Any], Float32, Float32], tmp_path: Path, dtype: type
) -> None:
    passages, queries = (array.astype(dtype) for array in made[1:])
    scored = run(tmp_path, passages, queries)["metrics"]
    assert run(tmp_path, passages.astype(np.float32), queries.astype(np.float32))["metrics"] == scored


def test_vectors_written_through_memory_between_two_runs_are_new_ones(
    made: tuple[dict[str, Any], Float32, Float32], tmp_path: Path
) -> None:
    config = write(tmp_path, *made[1:])
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r+")
    mapped[:] = mapped[::-1].copy()  # from now on the pages wait to be written, and the times stand still
    first = run_benchmark(config).metrics
    mapped[:] = mapped[::-1].copy()
    second = run_benchmark(config).metrics
    assert remade(second) == ["passages", "index", "search", "evaluate"]
    assert second["metrics"] == made[0]["metrics"] != first["metrics"]


def test_vectors_written_through_memory_during_a_run_are_refused(
    made: tuple[dict[str, Any], Float32, Float32], tmp_path: Path
) -> None:
    config = write(tmp_path, *made[1:])
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r+")
    mapped[0] = mapped[1]
    benchmark = Benchmark(config, Store(Path(config.cache)))
    benchmark.check()
    mapped[0] = mapped[2]
    with pytest.raises(InputError, match="changed while the run was reading it"):
        benchmark.run()
    assert not list(Path(config.cache).glob("passages/*/rows-*"))


@pytest.mark.parametrize("form", ["text", "archive", "packed archive"])
def test_vectors_with_ids_are_taken_in_any_order_and_of_more_texts(
    made: tuple[dict[str, Any], Float32, Float32], tmp_path: Path, form: str
) -> None:
    metrics, passages, queries = made
    api.export_data(write(tmp_path, passages, queries), tmp_path / "texts")
    ids = (tmp_path / "texts/passage_ids.txt").read_text(encoding="utf-8").splitlines()
    lines = (tmp_path / "texts/passages.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["_id"] for line in lines] == ids
    order = np.random.default_rng(1).permutation(len(ids) + 1)
    shuffled = np.concatenate([passages, passages[:1]])[order]
    names = np.array([*ids, "another"])[order]
    if form != "text":
        save = np.savez if form == "archive" else np.savez_compressed
        save(tmp_path / "p.npz", ids=names, vectors=shuffled)
        given = [f"model.passages={tmp_path}/p.npz"]
    else:
        (tmp_path / "ids.txt").write_text("\n".join(names), encoding="utf-8")
        given = [f"model.passage_ids={tmp_path}/ids.txt"]
    given.append(f"model.query_ids={tmp_path}/texts/query_ids.txt")
    assert run(tmp_path, shuffled, queries, *given)["metrics"] == metrics["metrics"]


def test_ids_that_do_not_fit_are_refused(
    made: tuple[dict[str, Any], Float32, Float32], tmp_path: Path
) -> None:
    _, passages, queries = made
    api.export_data(write(tmp_path, passages, queries), tmp_path / "texts")
    ids = (tmp_path / "texts/passage_ids.txt").read_text(encoding="utf-8").splitlines()
    for wrong, expected in (
        (ids[:-1], "are 344, and"),
        ([*ids[:-1], ids[0]], "more than once"),
        ([*ids[:-1], "another"], "lack 1 of the passages, such as"),
    ):
        (tmp_path / "ids.txt").write_text("\n".join(wrong), encoding="utf-8")
        with pytest.raises(InputError, match=expected):
            run(tmp_path, passages, queries, f"model.passage_ids={tmp_path}/ids.txt")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "write_archive",
    [
        lambda path, v: np.savez(path, vectors=v),
        lambda path, v: np.savez(path, ids=np.array(["a", {}], object), vectors=v),
        lambda path, v: path.write_bytes(b"PK\3\4" + bytes(100)),
    ],
    ids=["no ids", "pickled ids", "no archive"],
)
def test_an_archive_that_cannot_be_mapped_is_refused(tmp_path: Path, write_archive: Any) -> None:
    write_archive(tmp_path / "p.npz", np.eye(2, dtype=np.float32))
    with pytest.raises(InputError, match=r"p.npz is not a .npy or .npz file of vectors"):
        map_vectors(tmp_path / "p.npz", "model.passages")


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_many_blocks_in_any_order_are_those_of_the_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    monkeypatch.setattr(hashing, "BLOCK", 512)
    monkeypatch.setattr(hashing, "READ_BYTES", 2048)
    draw = np.random.default_rng(0)
    vectors = np.asarray(draw.random((500, 9)), order=order)  # a row is 72 bytes, and seldom within a block
    np.save(tmp_path / "p.npy", vectors)
    given = PrecomputedVectors({"passages": tmp_path / "p.npy", "queries": tmp_path / "p.npy"})
    column = pa.chunked_array([pa.array(["x"] * 500)])
    assert (given.take("passages", range(3, 480), column) == vectors[3:480].astype(np.float32)).all()
    rows = draw.permutation(500)
    given._rows["passages"] = rows
    assert (given.take("passages", range(7, 490), column) == vectors[rows[7:490]].astype(np.float32)).all()


def test_no_more_of_given_vectors_is_held_than_a_shard(tmp_path: Path) -> None:
    rows, shard = 40_000, 2_000
    np.save(tmp_path / "p.npy", np.ones((rows, 256), np.float32))  # 41 MB
    column = pa.chunked_array([pa.array(["x"] * rows)])
    given = PrecomputedVectors({"passages": tmp_path / "p.npy", "queries": tmp_path / "p.npy"})
    before = machine.resident_mb()
    for start in range(0, rows, shard):
        given.take("passages", range(start, start + shard), column.slice(start, shard))
    assert machine.resident_mb() - before < 20
