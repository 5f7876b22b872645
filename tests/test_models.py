"""Models in whole runs: those that are refused, the backend that `auto` takes, code that comes with one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from inside import pretend
from workplaces import read_json, run

from pipeline import InputError
from pipeline.results import result_table
from pipeline.storage import Draft, Recipe, Store, open_embeddings

MODEL = Path("bge-small-en-v1.5")


def test_shards_whose_dimensions_differ_are_refused(tmp_path: Path, write_shard: Callable[..., None]) -> None:
    def build(draft: Draft) -> dict[str, object]:
        write_shard(draft, 0, np.ones((4, 3), np.float32))
        write_shard(draft, 4, np.ones((4, 2), np.float32))
        return {}

    artifact = Store(tmp_path).make(Recipe("passages", {}), build)
    with pytest.raises(InputError, match="stored vectors have 2 and 3 dimensions"):
        open_embeddings(artifact)


@pytest.mark.parametrize(
    ("backend", "precision"), [("flag", "fp32"), ("openvino", "fp32"), ("native", "int16")]
)
def test_a_model_that_lacks_weights_is_refused_and_not_filled_in_at_random(
    workplace: Path, backend: str, precision: str
) -> None:
    path = workplace / MODEL / "config.json"
    described = read_json(path)
    path.write_text(json.dumps({**described, "num_hidden_layers": 3}), encoding="utf-8")
    with pytest.raises(InputError, match=r"its files lack 16 weights, such as encoder\.layer\.2\.attention"):
        run(workplace, f"model.backend={backend}", f"model.precision={precision}")


def ran(folder: Path, *settings: str) -> tuple[tuple[str, str, bool], list[str], list[str]]:
    """A run's backend and precision and whether `auto` took them, what it computed, and its notes."""
    record = run(folder, *settings).record
    (model,) = record.models
    computed = [row.stage for row in record.all_stages if row.outcome == "computed"]
    return (model.backend, model.precision, model.auto), computed, list(result_table(record).notes)


def test_auto_and_the_backend_that_it_takes_share_all_they_compute(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, vnni=True)  # the kernels count as fast on any processor
    took, computed, notes = ran(workplace, "name=a", "model.backend=auto")
    assert (took, computed[0], computed[-1]) == (("native", "int16", True), "passages", "evaluate")
    assert "bge-small-en-v1.5: backend native, int16 (chosen by auto)." in notes
    manifest = read_json(workplace / "results" / "a" / "manifest.json")
    settings, used = manifest["config"]["model"], manifest["models"][0]["settings"]
    assert (settings["backend"], settings["precision"]) == ("native", "int16")
    assert used["backend"] == {"value": "native", "source": "auto"}
    assert used["precision"] == {"value": "int16", "source": "auto"}
    took, computed, notes = ran(workplace, "name=n", "model.backend=native")
    assert (took, computed) == (("native", "int16", False), [])
    assert not any("auto" in note for note in notes)


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


def test_a_model_s_code_runs_only_when_the_config_says_so(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, mark = workplace / "bge-small-en-v1.5", workplace / "mark"
    (model / "modeling_odd.py").write_text(CODE, encoding="utf-8")
    described = read_json(model / "config.json")
    described |= {"model_type": "odd", "auto_map": MAP, "architectures": ["OddModel"]}
    (model / "config.json").write_text(json.dumps(described), encoding="utf-8")
    monkeypatch.setenv("MARK", str(mark))
    monkeypatch.setenv("HF_MODULES_CACHE", str(workplace / "modules"))
    shutil.rmtree(workplace / "indexes")
    for backend in ("flag", "sentence-transformers", "native, precision: int16", "openvino"):
        chosen = f"model={{name: {model}, backend: {backend}}}"
        with pytest.raises(InputError, match="runs only with Python files of its own"):
            run(workplace, chosen)
        assert not mark.exists()
        assert not list((workplace / "indexes").glob("passages/*/manifest.json"))
    # OpenVINO converts in a process of its own, where the code leaves nothing behind
    assert run(workplace, chosen, "model.trust_remote_code=true").record.queries == 114
    assert mark.exists()
