"""Texts of a collection in a file of training data: layouts of files, what counts, and what is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pipeline.cli import app


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


def run_data(folder: Path, training: list[Path], *options: str) -> Any:
    config = folder / "c.yaml"
    config.write_text(
        f"name: c\ndata: {{source: sample}}\nmodel: {{backend: bm25}}\ncache: {folder}/indexes\n",
        encoding="utf-8",
    )
    given = [word for path in training for word in ("--training-data", str(path))]
    return CliRunner().invoke(app, ["data", str(config), *given, *options])


def test_texts_in_training_data_are_counted_and_shown(root: Path, tmp_path: Path) -> None:
    sample = root / "pipeline/data/sample"
    qrels = [line.split("\t") for line in (sample / "qrels/test.tsv").read_text().splitlines()[1:]]
    query, relevant = next((line[0], line[1]) for line in qrels if int(line[2]) == 3)
    texts: dict[str, str] = {}
    for name in ("queries.jsonl", "corpus.jsonl"):
        for line in (sample / name).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            texts[record["_id"]] = " ".join(filter(None, (record.get("title"), record["text"])))
    found_text = texts[relevant].replace("\t", " ")
    training = [tmp_path / name for name in ("train.jsonl", "train.tsv", "train.txt.gz", "train.parquet")]
    for path in training:
        write(path, texts[query].upper() + "?!", [found_text, f"{found_text} and more", "17"])

    done = run_data(tmp_path, training, "--json")
    assert done.exit_code == 0, done.output
    for found in json.loads(done.stdout)["training_data"]:
        assert {key: found[key] for key in ("texts", "queries", "passages", "relevant", "pairs")} == {
            "texts": 3, "queries": 1, "passages": 1, "relevant": 1, "pairs": 1,
        }  # fmt: skip
        assert found["query_ids"] == [query]
        examples = [(each["role"], each["id"]) for each in found["examples"]]
        assert examples == [("query", query), ("passage", relevant)]
    shown = run_data(tmp_path, training).stdout.replace("\n", "")
    assert all(f"{path}: 3 texts" in shown for path in training)
    assert shown.count("1 query of these") == len(training)


@pytest.mark.parametrize(
    ("name", "said"), [("none.jsonl", "no such file"), ("bad.jsonl", "bad.jsonl, line 2")]
)
def test_bad_files_are_refused_before_anything_is_read(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"query": "a"}\n{"query": \n', encoding="utf-8")
    done = run_data(tmp_path, [tmp_path / name])
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""
