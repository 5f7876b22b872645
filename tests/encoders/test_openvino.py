"""OpenVINO's threads stay where this process may run; the end of its converter is told from a bad model."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from pipeline.config import BACKENDS
from pipeline.core.errors import InputError
from pipeline.encoders import Model, Network, open_encoder, resolve
from pipeline.storage.store import Store


@pytest.mark.usefixtures("quick_conversion")
@pytest.mark.parametrize("share", ["1", None], ids=["a share of the machine", "all of it"])
def test_threads_are_pinned_only_where_no_other_process_is_expected(
    bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str | None
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if share:
        monkeypatch.setenv("OMP_NUM_THREADS", share)
    config = BACKENDS.make(name=str(bge_folder), backend="openvino")
    model = resolve(config)
    assert isinstance(model, Model)
    compiled = open_encoder(config, model, Store(tmp_path)).backend.compiled
    if share:
        assert compiled.get_property("INFERENCE_NUM_THREADS") == int(share)
    assert compiled.get_property("ENABLE_CPU_PINNING") is (share is None)


@pytest.mark.usefixtures("own_models")
def test_a_conversion_that_something_kills_is_no_fault_of_the_model(
    bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -KILL $$\n", encoding="utf-8")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    config = BACKENDS.make(name=str(bge_folder), backend="openvino")
    model = resolve(config)
    assert isinstance(model, Model)
    with pytest.raises(ChildProcessError, match="conversion was ended by SIGKILL"):
        Network(config, model).prepare(Store(tmp_path / "store"))


@pytest.mark.usefixtures("quick_conversion")
def test_a_model_that_is_traced_into_another_is_refused(bge_folder: Path, tmp_path: Path) -> None:
    from transformers import LongformerConfig, LongformerModel

    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    config = LongformerConfig(
        vocab_size=30522, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        attention_window=16, max_position_embeddings=514, initializer_range=0.5,
    )  # fmt: skip
    LongformerModel(config).save_pretrained(folder)
    config = BACKENDS.make(name=str(folder), backend="openvino")
    model = resolve(config)
    assert isinstance(model, Model)
    with pytest.raises(InputError, match=r"traced model gives other vectors.* Set model\.backend to flag"):
        Network(config, model).prepare(Store(tmp_path / "store"))
