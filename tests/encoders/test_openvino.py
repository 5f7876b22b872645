"""OpenVINO's threads stay where this process may run, beside those of other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import ModelConfig
from pipeline.encoders import Model, resolve
from pipeline.encoders.openvino import OpenVINOBackend
from pipeline.store import Store


@pytest.mark.parametrize("share", ["1", None], ids=["a share of the machine", "all of it"])
def test_threads_are_pinned_only_where_no_other_process_is_expected(
    bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str | None
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if share:
        monkeypatch.setenv("OMP_NUM_THREADS", share)
    model = resolve(ModelConfig(name=str(bge_folder), backend="openvino"))
    assert isinstance(model, Model)
    compiled = OpenVINOBackend(model, Store(tmp_path)).compiled
    if share:
        assert compiled.get_property("INFERENCE_NUM_THREADS") == int(share)
    assert compiled.get_property("ENABLE_CPU_PINNING") is (share is None)
