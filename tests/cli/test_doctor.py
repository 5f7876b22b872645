"""`benchmarco doctor` says what is installed, which backends run, and what it cannot reach."""

import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from data.hub_client import client_of
from huggingface_hub import constants
from inside import be_offline, pretend
from workplaces import benchmarco, document, on_one_line

from pipeline.config import BACKENDS


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    be_offline(monkeypatch)


def test_it_names_every_backend_and_says_what_runs(tmp_path: Path) -> None:
    found = document("doctor")
    rows = found["backends"]
    assert {row["backend"] for row in rows} == {name.split()[0] for name in BACKENDS.all()}
    assert [row["backend"] for row in rows if not row["state"].startswith("runs")] == ["auto"]
    assert found["hub"] == {
        "address": constants.ENDPOINT,
        "reachable": False,
        "said": "HF_HUB_OFFLINE is set",
    }
    assert {"Faiss", "NumPy", "torch"} <= {each["library"] for each in found["kernels"]}
    extras = set(metadata.metadata("benchmarco").get_all("Provides-Extra")) - {"docs", "test"}
    assert {each["extra"] for each in found["packages"]} == {None, *extras}
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_said_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, no_version=("openvino", "ray", "openai"))
    done = benchmarco("doctor")
    lines = done.stdout.splitlines()
    assert any("openvino" in line and "needs " in line for line in lines)
    assert any("http" in line and "needs scripts/setup http" in line for line in lines)
    assert any("ray" in line and "scripts/setup ray" in line for line in lines)
    assert "Offline: only models and data" in done.stdout


@pytest.mark.parametrize(
    ("machine", "order"),
    [
        ({"vnni": True}, "native, openvino, flag"),
        ({"vnni": False}, "openvino, flag"),  # as on arm64
        ({"vnni": False, "no_version": ("openvino",)}, "flag"),
    ],
)
def test_it_says_what_auto_takes_here(
    machine: dict[str, Any], order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, gpus=(), **machine)
    (auto,) = [row for row in document("doctor")["backends"] if row["backend"] == "auto"]
    assert auto["state"] == f"takes the first that suits a model: {order}"


def test_a_hub_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    with client_of("http://127.0.0.1:9", tmp_path / "hub"):
        found = document("doctor")["hub"]
    assert not found["reachable"]
    assert "Connect" in found["said"]


@pytest.mark.parametrize("backend", ["native", "openvino"])
def test_the_record_of_a_config_s_model_and_its_comparison_are_shown(
    backend: str, bge_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(
        f"name: t\ndata: {{source: sample}}\nmodel: {{backend: {backend}, name: {bge_folder}}}\n"
        f"cache: {tmp_path}/cache\n",
        encoding="utf-8",
    )
    (record,) = document("doctor", tmp_path / "c.yaml")["models"]
    assert record["pooling"] == {"value": "cls", "source": "model"}
    assert record["weights"] == ["model.safetensors (F32)"]
    assert "modules.json" in record["not there"]
    assert 0.99999 < record["comparison"]["lowest_cosine"] <= 1
    assert record["attention"] == "a token sees those before and after it"
    assert record["weights that its files lack"] == "none"
    shown = benchmarco("doctor", tmp_path / "c.yaml").stdout
    assert "cls (model)" in shown
    assert f"lowest cosine: {record['comparison']['lowest_cosine']}" in shown


@pytest.mark.parametrize("weights", [b"", b"x" * 20, b"\2\0\0\0\0\0\0\0[]"])
def test_weights_that_are_not_what_their_name_says_are_bad_input(
    weights: bytes, bge_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(bge_folder, tmp_path / "m", ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "model.safetensors").write_bytes(weights)
    (tmp_path / "c.yaml").write_text(
        f"name: t\ndata: {{source: sample}}\nmodel: {{backend: flag, name: {folder}}}\ncache: {tmp_path}/c\n",
        encoding="utf-8",
    )
    said = on_one_line(benchmarco("doctor", tmp_path / "c.yaml", code=2))
    assert "model.safetensors: its beginning is not that of safetensors" in said
