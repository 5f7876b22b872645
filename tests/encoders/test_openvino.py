"""OpenVINO's threads stay where this process may run; the end of its converter is told from a bad model."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from inside import convert_by

from pipeline import InputError
from pipeline.encoders import Encoder
from pipeline.storage import Store

Opened = Callable[..., Encoder]


def test_threads_are_pinned_only_where_no_other_process_is_expected(
    bge_folder: Path, opened: Opened, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share in (1, None):  # of the machine's cores, or all
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if share:
            monkeypatch.setenv("OMP_NUM_THREADS", str(share))
        compiled = opened(store, name=bge_folder, backend="openvino").backend.compiled
        assert share is None or compiled.get_property("INFERENCE_NUM_THREADS") == share
        assert compiled.get_property("ENABLE_CPU_PINNING") is (share is None)


@pytest.mark.usefixtures("own_models")
def test_a_conversion_that_something_kills_is_no_fault_of_the_model(
    bge_folder: Path, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -KILL $$\n", encoding="utf-8")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    convert_by(monkeypatch, subprocess)
    with pytest.raises(ChildProcessError, match="conversion was ended by SIGKILL"):
        opened(Store(tmp_path / "store"), name=bge_folder, backend="openvino")


def test_a_model_that_is_traced_into_another_is_refused(
    saved: Callable[..., Path], opened: Opened, store: Store
) -> None:
    from transformers import LongformerConfig, LongformerModel

    config = LongformerConfig(
        vocab_size=30522, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        attention_window=16, max_position_embeddings=130, initializer_range=0.5,
    )  # fmt: skip
    with pytest.raises(InputError, match=r"traced model gives other vectors.* Set model\.backend to flag"):
        opened(store, name=saved(LongformerModel(config)), backend="openvino")
