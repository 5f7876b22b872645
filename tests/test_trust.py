"""Code that comes with a model: it runs only where the config says so."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from workplaces import run

from pipeline.core.errors import InputError

CODE = """
import os, pathlib
from transformers import BertConfig, BertModel
pathlib.Path(os.environ["MARK"]).touch()
class OddConfig(BertConfig):
    model_type = "odd"
class OddModel(BertModel):
    config_class = OddConfig
"""
MAP = {"AutoConfig": "modeling_odd.OddConfig", "AutoModel": "modeling_odd.OddModel"}


@pytest.fixture
def mark(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the model one with code of its own; the file that this code leaves when it runs."""
    model = workplace / "bge-small-en-v1.5"
    (model / "modeling_odd.py").write_text(CODE, encoding="utf-8")
    described = json.loads((model / "config.json").read_text(encoding="utf-8"))
    described |= {"model_type": "odd", "auto_map": MAP, "architectures": ["OddModel"]}
    (model / "config.json").write_text(json.dumps(described), encoding="utf-8")
    monkeypatch.setenv("MARK", str(workplace / "mark"))
    monkeypatch.setenv("HF_MODULES_CACHE", str(workplace / "modules"))
    shutil.rmtree(workplace / "indexes")
    return workplace / "mark"


@pytest.mark.parametrize("backend", ["openvino", "flag", "sentence-transformers", "native"])
def test_a_model_s_code_runs_only_when_the_config_says_so(workplace: Path, mark: Path, backend: str) -> None:
    settings = [f"model.backend={backend}"]
    if backend == "native":
        settings.append("model.precision=int16")
    with pytest.raises(InputError, match="runs only with Python files of its own"):
        run(workplace, *settings)
    assert not mark.exists()
    assert not list((workplace / "indexes").glob("passages/*/manifest.json"))
    if backend == "openvino":  # it converts in a process of its own, where the code leaves nothing behind
        shutil.rmtree(workplace / "results")
        run(workplace, *settings, "model.trust_remote_code=true")
        assert mark.exists()
        assert os.path.getsize(workplace / "results/t/run.trec") > 0
