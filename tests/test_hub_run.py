"""A whole benchmark whose data and model come from a hub: the real client against one on this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.results.folder import read_result
from pipeline.run.reproduction import compare_with_original

STAGES = ("data", "passages", "queries", "index", "search", "evaluate")
CONFIG = """
name: hub
data: {source: hub, path: someone/msmarco, split: dev, queries: 3, corpus: {positives_of: 5}}
model: {name: someone/bge-small-en-v1.5, backend: native, precision: int16}
search: {top_k: 3}
evaluate: {measures: [mrr@3, "recall(cap=true)@1"]}
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def published(hub_server: Any, tmp_path: Path, bge_folder: Path) -> dict[str, str]:
    """A dataset and a model in their hub layouts; the commit of each."""
    dataset = tmp_path / "dataset" / "data"
    dataset.mkdir(parents=True)
    queries = [f"what is number {row}" for row in range(8)]
    positives = [[f"number {row} is a number"] + ["and so is this"] * (row == 2) for row in range(8)]
    pq.write_table(
        pa.table({"query": queries, "positive": positives}), dataset / "dev-00000-of-00001.parquet"
    )
    return {
        "data": hub_server.publish("dataset", "someone/msmarco", dataset.parent),
        "model": hub_server.publish("model", "someone/bge-small-en-v1.5", bge_folder),
    }


@pytest.fixture
def run(hub_server: Any, tmp_path: Path) -> Run:
    (tmp_path / "hub.yaml").write_text(CONFIG, encoding="utf-8")

    def command(
        *arguments: str, name: str = "run", home: str = "home", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pipeline", name, "hub.yaml", *arguments],
            env=hub_server.environment(tmp_path / home, **environment),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return command


def recipes(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "results/hub/manifest.json").read_text(encoding="utf-8"))
    return dict(manifest["recipes"])


def reused(folder: Path) -> list[bool]:
    metrics = json.loads((folder / "results/hub/metrics.json").read_text(encoding="utf-8"))
    assert (metrics["queries"], metrics["passages"]) == (3, 6)
    return [stage["reused"] for stage in metrics["stages"]]


def test_branches_become_commits_files_come_once_and_then_no_hub_is_needed(
    hub_server: Any, published: dict[str, str], run: Run, tmp_path: Path, bge_folder: Path
) -> None:
    """Then a new commit, with its weights in .bin as older ones are, is encoded again."""
    import torch
    from safetensors.torch import load_file, save_file

    done = run()
    assert done.returncode == 0, done.stderr
    shaped = recipes(tmp_path)
    assert shaped["passages"]["model"]["identity"] == {
        "hub": "someone/bge-small-en-v1.5", "commit": published["model"]
    }  # fmt: skip
    assert published["data"] in json.dumps(shaped["passages"]["texts"])
    assert shaped["queries"]["model"]["prompt"][0].startswith("Represent this sentence")
    downloads = hub_server.downloads()
    assert len(downloads) == len(set(downloads))
    assert "model.safetensors" in downloads

    run("--set", f"model.revision={published['model']}", "--set", f"data.revision={published['data']}")
    assert all(reused(tmp_path))
    assert hub_server.downloads() == downloads

    before = (tmp_path / "results/hub/run.trec").read_bytes()
    older = shutil.copytree(bge_folder, tmp_path / "older")
    torch.save(load_file(older / "model.safetensors"), older / "pytorch_model.bin")
    save_file({"unused": torch.zeros(1)}, older / "adapter.safetensors")
    (older / "model.safetensors").unlink()
    hub_server.publish("model", "someone/bge-small-en-v1.5", older)
    done = run()
    assert done.returncode == 0, done.stderr
    assert reused(tmp_path) == [True, False, False, False, False, False]
    assert "pytorch_model.bin" in hub_server.downloads()
    assert (tmp_path / "results/hub/run.trec").read_bytes() == before
    found = compare_with_original(*(read_result(tmp_path / "results" / name) for name in ("hub~1", "hub")))
    assert found.unchanged
    assert {each.original for each in found.differences} == set(published.values())  # which were pinned

    shaped = recipes(tmp_path)
    hub_server.close()
    for stage in STAGES:
        shutil.rmtree(tmp_path / "indexes" / stage)
    for environment, is_reused in (({}, False), ({"HF_HUB_OFFLINE": "1"}, True)):
        done = run(**environment)
        assert done.returncode == 0, done.stderr
        assert set(reused(tmp_path)) == {is_reused}
        assert recipes(tmp_path) == shaped


def test_tokens_are_counted_without_the_weights(hub_server: Any, published: dict[str, str], run: Run) -> None:
    done = run("--json", name="data")
    assert json.loads(done.stdout)["lengths"]["passages"]["tokens"]["counted"] == 6
    assert "tokenizer.json" in hub_server.downloads()
    assert "model.safetensors" not in hub_server.downloads()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("model.name=someone/bge-smal-en-v1.5", "the hub has no model 'someone/bge-smal-en-v1.5'"),
        ("model.revision=v9", "model 'someone/bge-small-en-v1.5' on the hub has no revision 'v9'"),
        ("model.revision=" + "a" * 40, "on the hub has no revision 'aaa"),
    ],
)
def test_a_wrong_name_is_said_plainly(
    published: dict[str, str], run: Run, tmp_path: Path, setting: str, expected: str
) -> None:
    done = run("--set", setting)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_a_model_that_is_gated_is_said_plainly(hub_server: Any, published: dict[str, str], run: Run) -> None:
    hub_server.gated.add("someone/bge-small-en-v1.5")
    done = run()
    assert done.returncode == 2
    assert (
        "model 'someone/bge-small-en-v1.5' on the hub is gated: its owner has to grant access" in done.stderr
    )


def test_a_disk_that_refuses_is_not_taken_for_a_hub_that_is_gone(
    published: dict[str, str], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hub").touch()
    done = run()
    assert done.returncode == 2
    assert "home/hub/datasets--someone--msmarco" in done.stderr
    assert "Not a directory; set HF_HOME to a folder that can be written" in done.stderr


def test_a_hub_that_is_gone_is_said_plainly(hub_server: Any, published: dict[str, str], run: Run) -> None:
    hub_server.close()
    done = run()
    assert done.returncode == 2
    assert "someone/msmarco" in done.stderr
    assert "not on this machine" in done.stderr
    assert len(done.stderr.splitlines()) == 1
