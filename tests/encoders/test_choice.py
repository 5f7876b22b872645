"""The backend that `auto` takes, for every precision, machine and kind of model."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import BACKENDS
from pipeline.core import installation, machine
from pipeline.core.errors import InputError
from pipeline.encoders import Network, choice, resolve
from pipeline.models import resolution


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """The backend and the precision that are taken for some settings, on a machine with VNNI and OpenVINO."""
    monkeypatch.setattr(machine, "has_vnni", lambda: True)

    def take(**settings: Any) -> tuple[str, str]:
        taken = choice.take(BACKENDS.make(**settings), resolve)
        assert taken.taken_by_auto == (settings.get("backend", "auto") == "auto")
        return taken.backend, taken.precision

    return take


FASTEST = [
    ("fp32", "native", "int16"), ("fp16", "native", "int16"), ("bf16", "flag", "bf16"),
    ("int16", "native", "int16"), ("int8", "openvino", "int8"),
]  # fmt: skip


@pytest.mark.parametrize(("precision", "backend", "own"), FASTEST)
def test_each_precision_has_its_backend(
    take: Callable[..., tuple[str, str]], bge_folder: Path, precision: str, backend: str, own: str
) -> None:
    assert take(name=str(bge_folder), precision=precision) == (backend, own)


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({"backend": "native"}, "default"),
        ({"backend": "openvino", "precision": "fp32"}, "config"),
        ({}, "auto"),  # native computes fp32's vectors in int16
        ({"precision": "int8"}, "config"),
        ({"precision": "bf16"}, "config"),
        ({"precision": "fp16"}, "auto"),
    ],
)
def test_it_is_known_where_the_precision_comes_from(
    bge_folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], source: str
) -> None:
    monkeypatch.setattr(machine, "has_vnni", lambda: True)
    given = BACKENDS.make(name=str(bge_folder), **settings)
    used = resolve(choice.take(given, resolve)).decided["precision"]
    assert used.source == source


def test_bf16_is_told_what_is_faster(
    take: Callable[..., tuple[str, str]], bge_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    choice._point_to_fp32.cache_clear()
    with caplog.at_level(logging.INFO):
        take(name=str(bge_folder), precision="fp32")
        assert not caplog.messages
        for _ in range(2):
            take(name=str(bge_folder), precision="bf16")
    (said,) = caplog.messages
    assert "model.precision: fp32 is usually faster" in said


def test_other_outputs_of_bge_m3_have_theirs(
    take: Callable[..., tuple[str, str]], m3_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for output in ("sparse", "multivector"):
        assert take(name=str(m3_folder), output=output) == ("native", "int16")
        assert take(name=str(m3_folder), output=output, precision="bf16") == ("flag", "bf16")
    monkeypatch.setattr(machine, "has_vnni", lambda: False)
    for output in ("sparse", "multivector"):
        assert take(name=str(m3_folder), output=output) == ("flag", "fp32")


def test_other_outputs_of_other_models_are_sentence_transformers_(
    take: Callable[..., tuple[str, str]], bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="not a multi-vector model"):
        take(name=str(bge_folder), output="multivector")
    with pytest.raises(InputError, match="not a masked language model"):
        take(name=str(bge_folder), output="sparse")
    masked = Path(shutil.copytree(bge_folder, tmp_path / "masked"))
    described = json.loads((masked / "config.json").read_text(encoding="utf-8"))
    described["architectures"] = ["BertForMaskedLM"]
    (masked / "config.json").write_text(json.dumps(described), encoding="utf-8")
    assert take(name=str(masked), output="sparse") == ("native", "int16")
    assert take(name=str(masked), output="sparse", precision="bf16") == ("sentence-transformers", "bf16")
    monkeypatch.setattr(machine, "gpus", lambda: ("a GPU",))
    monkeypatch.setattr(resolution.metadata, "version", lambda _: "2.0")
    assert take(name=str(masked), output="sparse") == ("sentence-transformers", "fp32")


def test_a_named_backend_stays(take: Callable[..., tuple[str, str]], bge_folder: Path) -> None:
    assert take(name=str(bge_folder), backend="openvino", precision="bf16") == ("openvino", "bf16")


def test_on_a_gpu_flag_is_taken(
    take: Callable[..., tuple[str, str]], bge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: ("a GPU",))
    monkeypatch.setattr(resolution.metadata, "version", lambda _: "2.0")
    for precision in ("fp32", "fp16", "bf16"):
        assert take(name=str(bge_folder), precision=precision) == ("flag", precision)
    assert take(name=str(bge_folder), precision="int16") == ("native", "int16")
    assert take(name=str(bge_folder), device="cpu") == ("native", "int16")
    with pytest.raises(ValidationError, match="int16, which is computed on the CPU alone"):
        take(name=str(bge_folder), precision="int16", device="cuda")


def test_the_next_is_taken_where_this_machine_lacks_something(
    take: Callable[..., tuple[str, str]], bge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "has_vnni", lambda: False)
    assert take(name=str(bge_folder)) == ("openvino", "fp32")
    assert take(name=str(bge_folder), precision="int8") == ("openvino", "int8")
    monkeypatch.setattr(choice, "is_installed", lambda package: package != "openvino")
    assert take(name=str(bge_folder)) == ("flag", "fp32")


def test_an_extra_that_a_setting_needs_is_named(
    bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "is_installed", lambda package: False)
    settings = BACKENDS.make(name=str(bge_folder), backend="openvino")
    with pytest.raises(InputError, match=r"openvino needs the package openvino.*scripts/setup openvino"):
        Network(settings, resolve(settings)).prepared_keys()
    monkeypatch.setattr(installation, "_SETUP", tmp_path / "setup")
    with pytest.raises(InputError, match=r"Run pip install 'benchmarco\[ray\]'"):
        installation.require("ray", "ray", "engine.kind: ray")


@pytest.mark.parametrize(
    ("change", "backend"),
    [
        ({"hidden_act": "relu"}, "openvino"),
        ({"model_type": "electra"}, "openvino"),
        ({"is_decoder": True}, "openvino"),
        ({"position_embedding_type": "relative_key"}, "openvino"),
        ({"architectures": ["QwenForCausalLM"], "model_type": "qwen3"}, "flag"),
    ],
)
def test_the_next_is_taken_for_models_that_the_kernels_do_not_compute(
    take: Callable[..., tuple[str, str]],
    bge_folder: Path,
    tmp_path: Path,
    change: dict[str, Any],
    backend: str,
) -> None:
    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(described | change), encoding="utf-8")
    if backend == "flag":
        shutil.rmtree(folder / "1_Pooling")  # then a decoder's vector is that of its last token
    assert take(name=str(folder)) == (backend, "fp32")
