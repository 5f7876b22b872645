"""What a stage's rate leaves out: nothing is imported while the work that it counts goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from workplaces import run

from pipeline.core.json_record import StageRow
from pipeline.results.folder import read_result
from pipeline.results.tables import stage_table

WATCHED = """
import contextlib, json, sys
from pipeline.core import machine
from pipeline.search import exact
from pipeline.api import run_benchmark
from pipeline.config.files import load_config

imported = []
timed = machine.Meter.working

@contextlib.contextmanager
def working(meter, *modules):
    with timed(meter, *modules):
        before = set(sys.modules)
        yield
        imported.append(sorted(set(sys.modules) - before))

machine.Meter.working = working
exact.ENOUGH = 0  # as a large search does, this one takes the product that is worth preparing
run_benchmark(load_config(sys.argv[1], sys.argv[2:]))
print(json.dumps(imported))
"""


@pytest.mark.parametrize(
    "settings",
    [
        ["index.factory=Flat"],
        ["index.factory=IVF4,Flat", "index.shards=2"],
        ["index.factory=HNSW8", "search.memory_mb=null"],
        ["model={backend: bm25}"],
    ],
    ids=["exact", "shards", "approximate", "bm25"],
)
def test_nothing_is_imported_while_a_stage_is_timed(tmp_path: Path, settings: list[str]) -> None:
    random = np.random.default_rng(1)
    for name, rows in (("passages", 345), ("queries", 114)):
        vectors = random.standard_normal((rows, 16)).astype(np.float32)
        np.save(tmp_path / f"{name}.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    config = tmp_path / "c.yaml"
    config.write_text(
        f"name: timed\ndata: {{source: sample}}\ncache: {tmp_path}/cache\noutput: {tmp_path}/results\n"
        "model: {backend: precomputed, passages: passages.npy, queries: queries.npy}\n"
    )
    command = [sys.executable, "-c", WATCHED, str(config), *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported = json.loads(done.stdout.splitlines()[-1])
    assert len(imported) >= 4
    assert not any(imported), imported


def test_converting_a_model_is_reported_apart_from_the_stage_that_needed_it(workplace: Path) -> None:
    def passages() -> StageRow:
        return read_result(workplace / "results" / "t").record.stage("passages")

    first = passages()
    assert first.preparing_seconds is not None
    assert first.preparing_seconds > 0
    said = f"passages: packing or converting the model took {first.preparing_seconds:,.1f} s besides, once"
    assert said in str(stage_table(read_result(workplace / "results" / "t").record).notes)
    for stage in ("passages", "index", "search", "evaluate"):
        shutil.rmtree(workplace / "indexes" / stage)
    began = time.perf_counter()
    run(workplace)
    again = passages()
    assert not again.reused
    assert again.seconds is not None
    assert (again.preparing_seconds, again.seconds <= time.perf_counter() - began) == (None, True)
