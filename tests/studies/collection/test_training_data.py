"""Texts of a collection in a file of training data: layouts of files, what counts, and what is said."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from workplaces import benchmarco

from pipeline import write_collection


def write(path: Path, query: str, passages: list[str]) -> None:
    """One query and its passages, in the layout of the file's name."""
    record = {"_id": "q1", "query": query, "pos": passages, "score": 1, "more": {"text": ""}}
    if path.suffix == ".jsonl":
        path.write_text(json.dumps(record) + "\n\n", encoding="utf-8")
    elif path.suffix == ".tsv":
        path.write_text("\t".join(["17", query, *passages]) + "\n", encoding="utf-8")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress("\n".join([query, *passages]).encode()))
    else:
        pq.write_table(pa.table({"id": ["q1"], "query": [query], "pos": [passages], "n": [3]}), path)


TEXTS = {"p1": {"title": "Cats", "text": "the cat sat on the mat"}, "p2": "a dog ran"}


def run_data(folder: Path, training: list[Path], *options: str, code: int = 0) -> Any:
    data = write_collection(folder / "mine", TEXTS, {"q1": "where is the cat"}, {"q1": {"p1": 3}})
    config = {"name": "c", "data": data, "model": {"backend": "bm25"}, "cache": str(folder / "indexes")}
    (folder / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    given = [word for path in training for word in ("--training-data", str(path))]
    return benchmarco("data", folder / "c.yaml", *given, *options, code=code)


def test_texts_in_training_data_are_counted_and_shown(tmp_path: Path) -> None:
    training = [tmp_path / name for name in ("train.jsonl", "train.tsv", "train.txt.gz", "train.parquet")]
    for path in training:
        text = "Cats the cat sat on the mat"
        write(path, "WHERE is the cat?!", [text, f"{text} and more", "17"])
    for found in json.loads(run_data(tmp_path, training, "--json").stdout)["training_data"]:
        assert {key: found[key] for key in ("texts", "queries", "passages", "relevant", "pairs")} == {
            "texts": 3, "queries": 1, "passages": 1, "relevant": 1, "pairs": 1,
        }  # fmt: skip
        assert found["query_ids"] == ["q1"]
        assert [(each["role"], each["id"]) for each in found["examples"]] == [
            ("query", "q1"), ("passage", "p1")
        ]  # fmt: skip
    shown = run_data(tmp_path, training).stdout.replace("\n", "")
    assert all(f"{path}: 3 texts" in shown for path in training)
    assert shown.count("1 query of these") == len(training)


@pytest.mark.parametrize(
    ("name", "said"), [("none.jsonl", "no such file"), ("bad.jsonl", "bad.jsonl, line 2")]
)
def test_bad_files_are_refused_before_anything_is_read(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"query": "a"}\n{"query": \n', encoding="utf-8")
    done = run_data(tmp_path, [tmp_path / name], code=2)
    assert said in done.stderr
    assert done.stdout == ""
