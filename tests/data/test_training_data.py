"""Texts of a collection in a file of training data: near-duplicates, layouts of files, and what is said."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasketch import MinHash
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.core.words import words_of
from pipeline.data.near_duplicates import (
    NearDuplicates,
    permutations,
    shingles_of,
    signatures,
    similarity,
)
from pipeline.formats.any_texts import read_all_texts


@pytest.fixture(scope="module")
def queries(root: Path) -> list[dict[str, Any]]:
    lines = (root / "pipeline/data/sample/queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_similarity_of_runs_of_three_words() -> None:
    text = ["one", "two", "three", "four", "five"]
    assert similarity(text, text) == 1
    assert similarity(text, ["one", "two", "three", "four", "six"]) == 2 / 4
    assert similarity(text, ["five", "four", "three", "two", "one"]) == 0
    assert similarity(["one", "two"], ["one", "two"]) == 1  # too short for a run: one run of all its words
    assert similarity(["one", "two"], ["one"]) == 0


def test_signatures_are_datasketch_s_bit_by_bit(passages: list[str]) -> None:
    texts = [*(words_of(text) for text in passages[:40]), ["two", "words"], ["one"]]
    shingles = shingles_of(texts)
    ends = [*shingles.starts[1:].tolist(), len(shingles.hashes)]
    assert [stop - start for start, stop in zip(shingles.starts, ends, strict=True)] == [
        max(len(words) - 2, 1) for words in texts
    ]
    found = signatures(shingles)
    for row, (start, stop) in enumerate(zip(shingles.starts, ends, strict=True)):
        theirs = MinHash(
            num_perm=64,
            scheme="affine64",
            permutations=permutations(),
            hashfunc=lambda number: int.from_bytes(number, "little"),
        )
        theirs.update_batch([int(number).to_bytes(8, "little") for number in shingles.hashes[start:stop]])
        assert found[row].tolist() == theirs.hashvalues.tolist()


def test_equal_runs_have_equal_numbers_wherever_they_stand() -> None:
    first, second = (shingles_of([words, ["x"]]).hashes for words in (list("abcd"), list("zabc")))
    assert first[0] == second[1]
    assert len({*first, *second}) == 4
    assert shingles_of([["a", "b"]]).hashes != shingles_of([["b", "a"]]).hashes


def test_all_near_pairs_are_among_the_candidates(passages: list[str]) -> None:
    generator = random.Random(2)
    texts = [words_of(text) for text in passages[:120]]
    others = []
    for words in texts:
        changed = list(words)
        for place in generator.sample(range(len(words)), generator.randrange(4)):
            changed[place] = "changed"
        others.append(changed)
    known = NearDuplicates(iter([texts[:70], [], texts[70:]]))
    pairs = {(row, other) for row, other in known.candidates(others).tolist()}
    near = {
        (row, other)
        for row, words in enumerate(texts)
        for other, changed in enumerate(others)
        if similarity(words, changed) >= 0.8
    }
    assert len(near) > 60
    assert near <= pairs
    assert len(pairs) < 3 * len(texts)


TEXTS = ["First of all, a text.", "a second\u00a0one"]


@pytest.mark.parametrize("layout", ["training.jsonl", "tabs.tsv", "lines.txt.gz", "table.parquet"])
def test_every_layout_gives_its_texts(tmp_path: Path, layout: str) -> None:
    path = tmp_path / layout
    record = {"_id": "q1", "query": TEXTS[0], "pos": [TEXTS[1]], "score": 1, "more": {"text": ""}}
    if layout.endswith(".jsonl"):
        path.write_text(json.dumps(record) + "\n\n", encoding="utf-8")
    elif layout.endswith(".tsv"):
        path.write_text(f"17\t{TEXTS[0]}\t{TEXTS[1]}\n", encoding="utf-8")
    elif layout.endswith(".gz"):
        path.write_bytes(gzip.compress("\n".join(TEXTS).encode()))
    else:
        pq.write_table(pa.table({"id": ["q1"], "query": [TEXTS[0]], "pos": [[TEXTS[1]]], "n": [3]}), path)
    assert list(read_all_texts(path)) == [TEXTS]


def test_what_stands_in_training_data_is_counted_and_shown(
    root: Path, tmp_path: Path, passages: list[str], queries: list[dict[str, Any]]
) -> None:
    grades = [
        line.split("\t") for line in (root / "pipeline/data/sample/qrels/test.tsv").read_text().splitlines()
    ]
    lines = (root / "pipeline/data/sample/corpus.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {json.loads(line)["_id"]: row for row, line in enumerate(lines)}
    query, relevant = next((line[0], line[1]) for line in grades[1:] if int(line[2]) == 3)
    text = next(each["text"] for each in queries if each["_id"] == query)
    words = passages[rows[relevant]].split()
    words[len(words) // 2] = "changed"
    other = next(row for row in range(5, 345) if row != rows[relevant])
    records = [
        {"query": text.upper() + "?!", "pos": [" ".join(words)], "neg": [passages[other]]},
        {"query": "a question that nobody asks here", "pos": ["and its answer, which is not there"]},
    ]
    training = tmp_path / "train.jsonl"
    training.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    config = tmp_path / "c.yaml"
    config.write_text(
        f"name: c\ndata: {{source: sample}}\nmodel: {{backend: bm25}}\ncache: {tmp_path}/indexes\n",
        encoding="utf-8",
    )
    arguments = ["data", str(config), "--training-data", str(training)]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0
    (found,) = json.loads(done.stdout)["training_data"]
    assert (found["texts"], found["pairs"], found["query_ids"]) == (5, 1, [query])
    assert found["queries"] == {"exact": 1, "near": 0}
    assert found["passages"] == {"exact": 1, "near": 1}
    assert found["relevant"]["near"] == 1
    (near,) = [example for example in found["examples"] if example["similarity"] < 1]
    assert (near["role"], near["id"], near["training_text"]) == ("passage", relevant, " ".join(words))
    assert near["similarity"] == pytest.approx(
        similarity(words_of(passages[rows[relevant]]), words_of(" ".join(words)))
    )
    shown = CliRunner().invoke(app, arguments).stdout
    assert f"{training}: 5 texts" in shown
    assert "1 query of these" in shown


def test_bad_files_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "name: c\ndata: {source: sample}\nmodel: {backend: bm25}\n", encoding="utf-8"
    )
    (tmp_path / "bad.jsonl").write_text('{"query": "a"}\n{"query": \n', encoding="utf-8")
    for name, said in (("none.jsonl", "no such file"), ("bad.jsonl", "bad.jsonl, line 2")):
        sets = ["--set", f"cache={tmp_path}/indexes", "--training-data", str(tmp_path / name)]
        done = CliRunner().invoke(app, ["data", str(tmp_path / "c.yaml"), *sets])
        assert done.exit_code == 2
        assert said in done.stderr
        assert done.stdout == ""


def test_texts_without_words_are_near_nothing() -> None:
    known = NearDuplicates(iter([[]]))
    assert known.candidates([["a"]]).shape == (0, 2)
    assert np.array_equal(shingles_of([["a"]]).starts, [0])
