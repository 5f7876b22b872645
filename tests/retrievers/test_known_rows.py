"""A text is encoded once: rows of texts that an earlier run has encoded are copied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline import api
from pipeline.config.files import load_config
from pipeline.results.records import Metrics
from pipeline.results.tables import stage_table
from pipeline.retrievers.rows import TEXTS
from pipeline.run.benchmark import Benchmark
from pipeline.storage import vector_shards
from pipeline.storage.store import Store

NATIVE = ("model.backend=native", "model.precision=int16")


def run(folder: Path, *settings: str, cache: str = "indexes", fresh: bool = False) -> Metrics:
    places = [f"cache={folder / cache}", f"output={folder}/results"]
    return api.run_benchmark(load_config(folder / "c.yaml", [*places, *settings]), fresh=fresh).record


def vectors(folder: Path, *settings: str, cache: str = "indexes") -> np.ndarray:
    config = load_config(folder / "c.yaml", [f"cache={folder / cache}", *settings])
    opened = Benchmark(config, Store(folder / cache)).opened("passages")
    return vector_shards.read_rows(opened, 0, len(opened))


def encoded(metrics: Metrics, role: str = "passages") -> tuple[int, int | None]:
    """How many texts of a role were encoded, and how many were found."""
    row = metrics.stage(role)
    assert row.encoding is not None
    return row.encoding.texts, row.found


def edit(folder: Path, number: int = 200) -> None:
    """Change one letter of one passage."""
    path = folder / "data" / "corpus.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[number])
    record["text"] = "Q" + record["text"][1:]
    lines[number] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.usefixtures("quick_conversion")
def test_an_edited_letter_costs_one_passage_and_no_query(workplace: Path) -> None:
    """With `native`, copied vectors are those of a fresh run to the bit."""
    run(workplace, *NATIVE)
    edit(workplace)
    metrics = run(workplace, *NATIVE)
    assert encoded(metrics) == (1, 344)
    assert metrics.stage("queries").reused
    assert "passages: 344 of 345 texts had been encoded before" in stage_table(metrics).notes
    assert encoded(run(workplace, *NATIVE, cache="other")) == (345, 0)
    again = vectors(workplace, *NATIVE, cache="other")
    assert vectors(workplace, *NATIVE).tobytes() == again.tobytes()


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
    run(workplace, fresh=True)
    assert np.abs(copied - vectors(workplace)).max() < 1e-5


def test_other_settings_and_fresh_runs_find_nothing(workplace: Path) -> None:
    edit(workplace)
    assert encoded(run(workplace, "model.passage_max_length=9")) == (345, 0)
    assert encoded(run(workplace, "model.passage_instruction='x: '")) == (345, 0)
    assert encoded(run(workplace, fresh=True)) == (345, 0)
    metrics = run(workplace, "data.queries=5")
    assert metrics.stage("passages").reused
    assert encoded(metrics, "queries") == (0, 5)


@pytest.mark.parametrize(("harm", "found"), [("rows", 244), (TEXTS, 0), ("gone", 0)])
def test_what_is_damaged_is_not_copied(workplace: Path, harm: str, found: int) -> None:
    (table,) = (workplace / "indexes" / "passages").glob(f"*/{TEXTS}")
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
        if json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["made"]["found"]
    ]
    before = vectors(workplace)
    (edited[0] / "rows-0000000200-0000000300.npy").unlink()
    for stage in ("index", "search", "evaluate"):
        shutil.rmtree(workplace / "indexes" / stage)
    assert encoded(run(workplace)) == (1, 99)
    assert np.abs(vectors(workplace) - before).max() < 1e-5
