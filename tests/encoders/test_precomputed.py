"""Vectors people already have, taken through index, search and measures."""

import errno
import json
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import workplaces
from inside import resize
from workplaces import read_json

from pipeline import InputError, run_benchmark
from pipeline.config import BACKENDS, Config
from pipeline.core import resident_mb
from pipeline.encoders import resolve
from pipeline.formats import map_vectors
from pipeline.run import Benchmark, Session
from pipeline.storage import read_rows
from pipeline.studies.collection import export_data

CONFIG = """
name: t
data: {source: sample}
search: {top_k: 50}
evaluate: {measures: [ndcg@10, "map(rel=2)@50", recall@20, mrr@10, precision@5]}
"""


class Made(NamedTuple):
    """What a finished run measured, its vectors, and its ids of passages."""

    metrics: dict[str, Any]
    passages: np.ndarray
    queries: np.ndarray
    ids: list[str]


@pytest.fixture(scope="module")
def made(finished: Path) -> Made:
    """Of `finished`, whose store is only read."""
    metrics = read_json(finished / "results/t/metrics.json")["metrics"]
    with Session() as session:
        benchmark = Benchmark(workplaces.config(finished), session)
        rows, ids = benchmark.opened("passages"), benchmark.collection.passages.ids.to_pylist()
        return Made(metrics, read_rows(rows, 0, len(rows)), benchmark.opened("queries"), ids)


def run(folder: Path, passages: object, queries: object, *settings: str) -> dict[str, Any]:
    return run_benchmark(write(folder, passages, queries, *settings)).document


def remade(metrics: dict[str, Any]) -> list[str]:
    return [stage["stage"] for stage in metrics["stages"] if not stage["reused"]]


def write(folder: Path, passages: object, queries: object, *settings: str) -> Config:
    """Write vectors and a config of them."""
    np.save(folder / "p.npy", passages)  # type: ignore[arg-type]
    np.save(folder / "q.npy", queries)  # type: ignore[arg-type]
    given = "model: {backend: precomputed, passages: p.npy, queries: q.npy, shard_rows: 100}"
    (folder / "c.yaml").write_text(CONFIG + given, encoding="utf-8")
    return workplaces.config(folder, *settings)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_model_s_own_vectors_give_the_model_s_measures(made: Made, tmp_path: Path, dtype: type) -> None:
    passages, queries = made.passages.astype(dtype), made.queries.astype(dtype)
    assert run(tmp_path, passages, queries)["metrics"] == made.metrics
    assert remade(run(tmp_path, passages, queries)) == []
    queries[0] = passages[0]
    assert remade(run(tmp_path, passages, queries)) == ["queries", "search", "evaluate"]


def test_vectors_written_through_memory_between_two_runs_are_new_ones(made: Made, tmp_path: Path) -> None:
    config = write(tmp_path, made.passages, made.queries)
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r+")
    mapped[:] = mapped[::-1].copy()  # from now on the pages wait to be written, and the times stand still
    first = run_benchmark(config).document
    mapped[:] = mapped[::-1].copy()
    second = run_benchmark(config).document
    assert remade(second) == ["passages", "index", "search", "evaluate"]
    assert second["metrics"] == made.metrics != first["metrics"]


def test_vectors_written_through_memory_during_a_run_are_refused(made: Made, tmp_path: Path) -> None:
    config = write(tmp_path, made.passages, made.queries)
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r+")
    mapped[0] = mapped[1]
    benchmark = Benchmark(config, Session())
    benchmark.check()
    mapped[0] = mapped[2]
    with pytest.raises(InputError, match="changed while the run was reading it"):
        benchmark.ensure("search", "evaluate")
    assert not list(Path(config.cache).glob("passages/*/rows-*"))


@pytest.mark.parametrize("form", ["text", "archive", "packed archive"])
def test_vectors_with_ids_are_taken_in_any_order_and_of_more_texts(
    made: Made, tmp_path: Path, form: str
) -> None:
    order = np.random.default_rng(1).permutation(len(made.ids) + 1)
    shuffled = np.concatenate([made.passages, made.passages[:1]])[order]
    names = np.array([*made.ids, "another"])[order]
    if form == "text":
        (tmp_path / "ids.txt").write_text("\n".join(names), encoding="utf-8")
        given = "model.passage_ids=ids.txt"
    else:
        save = np.savez if form == "archive" else np.savez_compressed
        save(tmp_path / "p.npz", ids=names, vectors=shuffled)
        given = "model.passages=p.npz"
    assert run(tmp_path, shuffled, made.queries, given)["metrics"] == made.metrics


def test_exported_ids_stand_beside_the_texts_and_are_taken(made: Made, tmp_path: Path) -> None:
    config = write(tmp_path, made.passages, made.queries)
    export_data(config, tmp_path / "texts")
    lines = (tmp_path / "texts/passages.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["_id"] for line in lines] == made.ids
    given = [f"model.{role}_ids=texts/{role}_ids.txt" for role in ("passage", "query")]
    assert run(tmp_path, made.passages, made.queries, *given)["metrics"] == made.metrics


def test_ids_that_do_not_fit_are_refused(made: Made, tmp_path: Path) -> None:
    for wrong, expected in (
        (made.ids[:-1], "are 344, and"),
        ([*made.ids[:-1], made.ids[0]], "more than once"),
        ([*made.ids[:-1], "another"], "lack 1 of the passages, such as"),
    ):
        (tmp_path / "ids.txt").write_text("\n".join(wrong), encoding="utf-8")
        with pytest.raises(InputError, match=expected):
            run(tmp_path, made.passages, made.queries, "model.passage_ids=ids.txt")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "arrays",
    [
        {"vectors": np.eye(2, dtype=np.float32)},
        {"vectors": np.eye(2, dtype=np.float32), "ids": np.array(["a", {}], object)},
    ],
    ids=["no ids", "pickled ids"],
)
def test_an_archive_that_cannot_be_mapped_is_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(InputError, match=r"p.npz is not a .npy or .npz file of vectors"):
        map_vectors(tmp_path / "p.npz", "model.passages")


def test_too_little_memory_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "p.npy", np.eye(2, dtype=np.float32))
    for error in (MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")):
        monkeypatch.setattr(np, "load", Mock(side_effect=error))
        with pytest.raises(type(error)):
            map_vectors(tmp_path / "p.npy", "model.passages")


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_many_blocks_in_any_order_are_those_of_the_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    resize(monkeypatch, hashed_bytes=512)
    draw = np.random.default_rng(0)
    vectors = np.asarray(draw.random((500, 9)), order=order)  # a row is 72 bytes, and seldom within a block
    np.save(path := tmp_path / "p.npy", vectors)
    given = resolve(BACKENDS.make(backend="precomputed", passages=str(path), queries=str(path)))
    column = pa.chunked_array([pa.array(["x"] * 500)])
    assert (given.take("passages", range(3, 480), column) == vectors[3:480].astype(np.float32)).all()
    rows = draw.permutation(500)
    given._rows["passages"] = rows
    assert (given.take("passages", range(7, 490), column) == vectors[rows[7:490]].astype(np.float32)).all()


def test_no_more_of_given_vectors_is_held_than_a_shard(tmp_path: Path) -> None:
    rows, shard = 40_000, 2_000
    np.save(path := tmp_path / "p.npy", np.ones((rows, 512), np.float16))  # 41 MB
    column = pa.chunked_array([pa.array(["x"] * rows)])
    given = resolve(BACKENDS.make(backend="precomputed", passages=str(path), queries=str(path)))
    before = resident_mb()
    for start in range(0, rows, shard):
        taken = given.take("passages", range(start, start + shard), column.slice(start, shard))
        assert taken.dtype == np.float32
    assert resident_mb() - before < 20
