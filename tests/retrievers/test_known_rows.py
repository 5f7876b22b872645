"""A text is encoded once: rows of texts that an earlier run has encoded are copied."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workplaces
from hypothesis import given, strategies as st
from workplaces import read_json

from pipeline.results import Metrics, stage_table
from pipeline.retrievers import find_rows, table_of
from pipeline.run import Benchmark, Session
from pipeline.storage import read_rows
from pipeline.studies.cache import cache_entries


def run(folder: Path, *settings: str, fresh: bool = False) -> Metrics:
    return workplaces.run(folder, *settings, fresh=fresh).record


def vectors(folder: Path) -> np.ndarray:
    opened = Benchmark(workplaces.config(folder), Session()).opened("passages")
    return read_rows(opened, 0, len(opened))


def encoded(metrics: Metrics, role: str = "passages") -> tuple[int, int | None]:
    """How many texts of a role were encoded, and how many were found."""
    row = metrics.stage(role)
    assert row.encoding is not None
    return row.encoding.texts, row.found


def edit(folder: Path) -> None:
    """Change one letter of one passage."""
    path = folder / "data" / "corpus.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[200])
    record["text"] = "Q" + record["text"][1:]
    lines[200] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def artifacts(cache: Path) -> dict[tuple[str, str], Any]:
    """The checksums of a cache's files."""
    return {(kept.stage, kept.key): kept.manifest["files"] for kept in cache_entries(cache) if kept.manifest}


SPARSE = "{backend: native, output: sparse, name: NAME, passage_max_length: 16, shard_rows: 100}"


@pytest.mark.parametrize("output", ["dense", "sparse"])
def test_an_edited_letter_costs_one_passage_and_no_query(workplace: Path, root: Path, output: str) -> None:
    """With `native`, copied rows are those of a fresh run to the bit, and so is all that is made of them."""
    settings = ["model.backend=native", "model.precision=int16"]
    if output == "sparse":
        splade = root.parent / "shared" / "models" / "splade-tiny"
        if not splade.is_dir():
            pytest.skip("the model ../shared/models/splade-tiny is not on this machine")
        settings = [f"model={SPARSE.replace('NAME', str(splade))}"]
    run(workplace, *settings)
    edit(workplace)
    metrics = run(workplace, *settings)
    assert encoded(metrics) == (1, 344)
    assert metrics.stage("queries").reused
    assert "passages: 344 of 345 texts had been encoded before" in stage_table(metrics).notes
    assert encoded(run(workplace, *settings, f"cache={workplace}/other")) == (345, 0)
    edited, fresh = artifacts(workplace / "indexes"), artifacts(workplace / "other")
    assert {key: edited.get(key) for key in fresh} == fresh


def test_a_corpus_that_grew_or_was_cut_and_put_in_another_order(workplace: Path) -> None:
    """Rows come from two artifacts, and a text that stands twice is found for both."""
    path = workplace / "data" / "corpus.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    again = [json.dumps({"_id": f"again{n}", "text": texts[n]}) for n in (3, 340)]
    new = [json.dumps({"_id": f"new{n}", "text": f"a text that is new, number {n}"}) for n in range(4)]
    path.write_text("\n".join([*new, *lines[::-1], *again]) + "\n", encoding="utf-8")
    assert encoded(run(workplace)) == (4, 347)
    more = json.dumps({"_id": "more", "text": "and one more"})
    path.write_text("\n".join([*lines, more, new[2], *again]) + "\n", encoding="utf-8")
    assert encoded(run(workplace)) == (1, 348)
    copied = vectors(workplace)
    assert encoded(run(workplace, fresh=True)) == (349, 0)
    assert np.abs(copied - vectors(workplace)).max() < 1e-5


def test_other_settings_find_nothing(workplace: Path) -> None:
    edit(workplace)
    assert encoded(run(workplace, "model.passage_instruction='x: '", "model.passage_max_length=9")) == (
        345,
        0,
    )
    metrics = run(workplace, "data.queries=5")
    assert encoded(metrics) == (1, 344)
    assert encoded(metrics, "queries") == (0, 5)


@pytest.mark.parametrize(("harm", "found"), [("rows", 244), ("texts", 0), ("gone", 0)])
def test_what_is_damaged_is_not_copied(workplace: Path, harm: str, found: int) -> None:
    (table,) = (workplace / "indexes" / "passages").glob("*/texts.npy")
    if harm == "gone":
        (table.parent / "manifest.json").unlink()
    else:
        (path,) = table.parent.glob("rows-0000000100-*") if harm == "rows" else [table]
        content = bytearray(path.read_bytes())
        content[-9] ^= 1
        path.write_bytes(content)
    edit(workplace)
    assert encoded(run(workplace)) == (345 - found, found)


def test_a_run_that_stopped_goes_on_with_what_is_known(workplace: Path) -> None:
    """The edited passage is in the third shard, which is lost with the manifest."""
    edit(workplace)
    run(workplace)
    edited = [
        folder
        for folder in (workplace / "indexes" / "passages").iterdir()
        if read_json(folder / "manifest.json")["made"]["found"]
    ]
    before = vectors(workplace)
    (edited[0] / "rows-0000000200-0000000300.npy").unlink()
    for stage in ("index", "search", "evaluate"):
        shutil.rmtree(workplace / "indexes" / stage)
    assert encoded(run(workplace)) == (1, 99)
    assert np.abs(vectors(workplace) - before).max() < 1e-5


HASHES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12)


@given(HASHES, HASHES)
def test_texts_whose_hashes_begin_alike_are_told_apart(
    kept: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    table = table_of(np.array(kept, np.uint64).reshape(-1, 2))
    found = find_rows(table, np.array(wanted, np.uint64).reshape(-1, 2)).tolist()
    assert [kept[row] if row >= 0 else None for row in found] == [
        each if each in kept else None for each in wanted
    ]
