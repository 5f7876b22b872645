"""The backend that `auto` takes, for every precision, machine and kind of model."""

import json
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from inside import leave_the_checkout, pretend
from workplaces import read_json

from pipeline import InputError
from pipeline.config import BACKENDS, as_config
from pipeline.encoders import resolve, settle
from pipeline.models import CalibrationCorpus

Take = Callable[..., str]


@pytest.fixture
def take(bge_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Take:
    """The backend, the precision and its source that are taken for some settings, by default with VNNI."""

    def take(lacks: str = "", **settings: Any) -> str:
        pretend(monkeypatch, vnni=not lacks, lacks=lacks)
        sections = {"data": {"source": "sample"}, "model": {"name": str(bge_folder), **settings}}
        taken = settle(as_config({"name": "t", **sections})).model
        assert (taken.source_of("backend") == "auto") == (settings.get("backend", "auto") == "auto")
        source = resolve(taken).model.decided["precision"].source
        return f"{taken.backend} {taken.precision} {source}"

    return take


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has a GPU, and a PyTorch for it."""
    pretend(monkeypatch, gpus=("a GPU",))
    monkeypatch.setattr(metadata, "version", lambda _: "2.0")


@pytest.mark.parametrize(
    ("lacks", "settings", "taken"),
    [
        ("", {}, "native int16 auto"),
        ("", {"precision": "fp16"}, "native int16 auto"),
        ("", {"precision": "bf16"}, "flag bf16 config"),
        ("", {"precision": "int16"}, "native int16 config"),
        ("", {"precision": "int8"}, "openvino int8 config"),
        ("", {"backend": "native"}, "native int16 default"),
        ("", {"backend": "openvino", "precision": "bf16"}, "openvino bf16 config"),
        ("VNNI", {}, "openvino fp32 default"),
        ("VNNI", {"precision": "int8"}, "openvino int8 config"),
        ("openvino", {}, "flag fp32 default"),  # and VNNI
    ],
)
def test_the_fastest_that_runs_here_is_taken(
    take: Take, lacks: str, settings: dict[str, Any], taken: str
) -> None:
    assert take(lacks, **settings) == taken


@pytest.mark.usefixtures("gpu")
def test_on_a_gpu_flag_is_taken(take: Take) -> None:
    for precision in ("fp32", "fp16", "bf16"):
        assert take(precision=precision) == f"flag {precision} config"
    assert take(precision="int16") == "native int16 config"
    assert take(device="cpu") == "native int16 auto"
    with pytest.raises(InputError, match="int16, which is computed on the CPU alone"):
        take(precision="int16", device="cuda")


@pytest.mark.parametrize("output", ["sparse", "multivector"])
def test_other_outputs_of_bge_m3_have_theirs(take: Take, m3_folder: Path, output: str) -> None:
    model = {"name": str(m3_folder), "output": output}
    assert take(**model) == "native int16 auto"
    assert take(**model, precision="bf16") == "flag bf16 config"
    assert take("VNNI", **model) == "flag fp32 default"


def changed(folder: Path, target: Path, **described: Any) -> str:
    """A copy of a model that describes itself otherwise."""
    path = Path(shutil.copytree(folder, target)) / "config.json"
    content = read_json(path)
    path.write_text(json.dumps({**content, **described}), encoding="utf-8")
    return str(target)


def test_other_outputs_of_other_models_are_sentence_transformers_(
    take: Take, bge_folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(InputError, match="not a multi-vector model"):
        take(output="multivector")
    with pytest.raises(InputError, match="not a masked language model"):
        take(output="sparse")
    name = changed(bge_folder, tmp_path / "masked", architectures=["BertForMaskedLM"])
    assert take(name=name, output="sparse") == "native int16 auto"
    assert take(name=name, output="sparse", precision="bf16") == "sentence-transformers bf16 config"
    request.getfixturevalue("gpu")
    assert take(name=name, output="sparse") == "sentence-transformers fp32 default"


@pytest.mark.parametrize(
    ("described", "taken"),
    [
        ({"hidden_act": "relu"}, "openvino fp32 default"),
        ({"model_type": "electra"}, "openvino fp32 default"),
        ({"is_decoder": True}, "openvino fp32 default"),
        ({"position_embedding_type": "relative_key"}, "openvino fp32 default"),
        ({"architectures": ["QwenForCausalLM"], "model_type": "qwen3"}, "flag fp32 default"),
    ],
)
def test_the_next_is_taken_for_models_that_the_kernels_do_not_compute(
    take: Take, bge_folder: Path, tmp_path: Path, described: dict[str, Any], taken: str
) -> None:
    name = changed(bge_folder, tmp_path / "model", **described)
    if "architectures" in described:
        shutil.rmtree(tmp_path / "model" / "1_Pooling")  # then a decoder's vector is that of its last token
    assert take(name=name) == taken


@pytest.mark.parametrize(("precision", "lacks"), [("fp32", "openvino"), ("int8", "nncf")])
def test_an_extra_that_a_setting_needs_is_named(
    bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str, lacks: str
) -> None:
    pretend(monkeypatch, lacks=lacks)
    settings = BACKENDS.make(name=str(bge_folder), backend="openvino", precision=precision)
    opener = resolve(settings).calibrated_on(CalibrationCorpus({}, tmp_path))
    extra = "int8" if lacks == "nncf" else lacks
    with pytest.raises(InputError, match=rf"needs the package {lacks}.*scripts/setup {extra}"):
        opener.ingredients("passages")
    leave_the_checkout(monkeypatch, tmp_path)
    with pytest.raises(InputError, match=rf"Run pip install 'benchmarco\[{extra}\]'"):
        opener.ingredients("passages")
