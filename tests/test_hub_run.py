"""A whole benchmark whose data and model come from a hub: the real client against one on this machine."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked import Fork
from layouts import write_parquet
from workplaces import read_json

from pipeline.results import read_result
from pipeline.studies.reproduce import compare_with_original

MODEL = "someone/bge-small-en-v1.5"
CONFIG = f"""
name: hub
data: {{source: hub, path: someone/msmarco, split: dev, queries: 3, corpus: {{positives_of: 5}}}}
model: {{name: {MODEL}, backend: native, precision: int16}}
search: {{top_k: 3}}
evaluate: {{measures: [mrr@3, "recall(cap=true)@1"]}}
"""


@pytest.fixture
def published(hub_server: Any, tmp_path: Path, bge_folder: Path) -> dict[str, str]:
    """A dataset and a model in their hub layouts; the commit of each."""
    queries = [f"what is number {row}" for row in range(8)]
    positives = [[f"number {row} is a number"] + ["and so is this"] * (row == 2) for row in range(8)]
    write_parquet(tmp_path / "data/data/dev-00000-of-00001.parquet", query=queries, positive=positives)
    return {
        "data": hub_server.publish("dataset", "someone/msmarco", tmp_path / "data"),
        "model": hub_server.publish("model", MODEL, bge_folder),
    }


@pytest.fixture
def run(hub_server: Any, published: dict[str, str], fork: Fork, tmp_path: Path) -> Callable[..., str]:
    """Runs the config in a process of its own, whose output it gives, or the message that refused it."""
    (tmp_path / "hub.yaml").write_text(CONFIG, encoding="utf-8")

    def command(*arguments: str, name: str = "run", code: int = 0, **environment: str) -> str:
        environment = {"HF_HUB_OFFLINE": "0", **environment}
        known = hub_server.environment(tmp_path / "home", **environment)
        done = fork("pipeline", name, "hub.yaml", *arguments, environment=known, folder=tmp_path)
        assert done.returncode == code, done.stderr
        return str(done.stderr if code else done.stdout)

    return command


def recipes(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = read_json(folder / "results/hub/manifest.json")
    return dict(manifest["recipes"])


def reused(folder: Path) -> list[bool]:
    metrics = read_json(folder / "results/hub/metrics.json")
    assert (metrics["queries"], metrics["passages"]) == (3, 6)
    return [stage["reused"] for stage in metrics["stages"]]


def test_branches_become_commits_files_come_once_and_then_no_hub_is_needed(
    hub_server: Any, published: dict[str, str], run: Callable[..., str], tmp_path: Path, bge_folder: Path
) -> None:
    """Then a new commit, with its weights in .bin as older ones are, is encoded again."""
    import torch
    from safetensors.torch import load_file, save_file

    described = json.loads(run("--json", name="data"))
    assert described["lengths"]["passages"]["tokens"]["counted"] == 6
    assert "tokenizer.json" in hub_server.downloads()
    assert "model.safetensors" not in hub_server.downloads()  # which count no tokens

    run()
    shaped = recipes(tmp_path)
    assert shaped["passages"]["model"]["identity"] == {"hub": MODEL, "commit": published["model"]}
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
    hub_server.publish("model", MODEL, older)
    run()
    assert reused(tmp_path) == [True, False, False, False, False, False]
    assert "pytorch_model.bin" in hub_server.downloads()
    assert (tmp_path / "results/hub/run.trec").read_bytes() == before
    found = compare_with_original(
        *(read_result(tmp_path / "results" / name).only_collection() for name in ("hub~1", "hub"))
    )
    assert found.unchanged
    assert {each.original for each in found.differences} == set(published.values())  # which were pinned

    shaped = recipes(tmp_path)
    hub_server.close()
    shutil.rmtree(tmp_path / "indexes")
    for environment, is_reused in (({}, False), ({"HF_HUB_OFFLINE": "1"}, True)):
        run(**environment)
        assert set(reused(tmp_path)) == {is_reused}
        assert recipes(tmp_path) == shaped


def test_what_a_hub_lacks_or_keeps_is_said_plainly(
    hub_server: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    known = f"model '{MODEL}' on the hub"
    for setting, expected in (
        ("model.name=someone/bge-smal-en-v1.5", "the hub has no model 'someone/bge-smal-en-v1.5'"),
        ("model.revision=v9", f"{known} has no revision 'v9'"),
        ("model.revision=" + "a" * 40, f"{known} has no revision 'aaa"),
    ):
        (line,) = run("--set", setting, code=2).splitlines()
        assert expected in line
    (tmp_path / "away" / "hub").mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "hub").touch()
    refused = run(code=2, HF_HOME=str(tmp_path / "disk"))  # a disk that refuses, not a hub that is gone
    assert "disk/hub/datasets--someone--msmarco" in refused
    assert "Not a directory; set HF_HOME to a folder that can be written" in refused
    hub_server.gated.add(MODEL)
    assert f"{known} is gated: its owner has to grant access" in run(code=2)
    hub_server.close()
    (gone,) = run(code=2, HF_HOME=str(tmp_path / "away")).splitlines()
    assert "someone/msmarco" in gone
    assert "not on this machine" in gone
    assert not (tmp_path / "results").exists()
