"""The shipped configs, run on local copies of what they name, with the hub out of reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS, TWO = 5100, 331  # of the first 5,000 rows, 331 have two positives: 5,331 passages, as in the tutorial


def benchmarco(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def msmarco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders in the layout of `namespace-Pt/msmarco` and `namespace-Pt/msmarco-corpus`."""
    folder = tmp_path_factory.mktemp("msmarco")
    positives = [
        [f"answer {row} of {row % 7}", *([f"another answer {row}"] if 0 < row <= TWO else [])]
        for row in range(ROWS)
    ]
    rows = {"query": [f"question {row}" for row in range(ROWS)], "positive": positives}
    (folder / "queries" / "data").mkdir(parents=True)
    pq.write_table(pa.table(rows), folder / "queries" / "data" / "dev-00000-of-00001.parquet")
    passages = [text for texts in positives[:60] for text in texts] + [f"noise {row}" for row in range(300)]
    (folder / "corpus" / "data").mkdir(parents=True)
    table = pa.table({"content": passages})
    pq.write_table(table.slice(0, 100), folder / "corpus" / "data" / "train-00000-of-00002.parquet")
    pq.write_table(table.slice(100), folder / "corpus" / "data" / "train-00001-of-00002.parquet")
    return folder


def run(config: Path, folder: Path, *settings: str) -> dict[str, Any]:
    cache = f"cache={folder.parent / 'shipped'}"  # one, so that the model is converted once
    sets = [part for setting in (*settings, cache) for part in ("--set", setting)]
    done = benchmarco("run", config, *sets, folder=folder)
    assert done.returncode == 0, done.stderr
    metrics: dict[str, Any] = json.loads(
        (folder / "results" / config.stem / "metrics.json").read_text(encoding="utf-8")
    )
    return metrics


def test_tutorial_on_a_local_copy(root: Path, msmarco: Path, bge_folder: Path, tmp_path: Path) -> None:
    settings = (f"data.path={msmarco / 'queries'}", f"model.name={bge_folder}", "model.backend=openvino")
    metrics = run(root / "configs" / "tutorial.yaml", tmp_path, *settings)
    assert (metrics["queries"], metrics["passages"]) == (100, 5331)
    assert list(metrics["metrics"]) == [
        "recall(cap=true)@1", "recall(cap=true)@10", "mrr@1", "mrr@10", "ndcg@1", "ndcg@10"
    ]  # fmt: skip


def test_whole_collection_joins_judgments_by_text(
    root: Path, msmarco: Path, bge_folder: Path, tmp_path: Path
) -> None:
    settings = (
        f"data.path={msmarco / 'queries'}",
        f"data.corpus_path={msmarco / 'corpus'}",
        f"model.name={bge_folder}",
        "model.backend=openvino",
        "data.missing_passages=drop",  # the copy holds the passages of 60 queries
    )
    metrics = run(root / "configs" / "msmarco-dev.yaml", tmp_path, *settings)
    assert (metrics["queries"], metrics["passages"]) == (60, 60 + 59 + 300)
