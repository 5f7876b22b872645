"""Prepared models are kept once for all caches of a user."""

import os
from pathlib import Path
from typing import Any

import pytest

from pipeline import InputError, run_benchmark
from pipeline.storage import Recipe, Store

CONFIG: dict[str, Any] = {
    "name": "t", "data": {"source": "sample", "corpus": 20, "queries": 5}, "search": {"top_k": 10},
    "evaluate": {"measures": ["ndcg@10"]},
}  # fmt: skip


def prepared(folder: Path) -> set[Path]:
    return {path.parent for path in folder.glob("openvino/*/manifest.json")}


def test_a_model_is_prepared_once_for_all_caches(
    bge_folder: Path,
    own_models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run(place: str) -> tuple[str, bool]:
        """The key of the passages, and whether the model was prepared."""
        places = {part: str(tmp_path / place / part) for part in ("cache", "output")}
        model = {"backend": "openvino", "name": str(bge_folder)}
        result = run_benchmark({**CONFIG, "model": model, **places})
        seconds = result.record.stage("passages").preparing_seconds
        (key,) = (path.name for path in (tmp_path / place / "cache" / "passages").iterdir())
        return key, bool(seconds)

    first, made = run("first")
    assert (made, len(prepared(own_models)), prepared(tmp_path / "first" / "cache")) == (True, 1, set())
    assert run("second") == (first, False)
    (folder,) = prepared(own_models)
    weights = folder / "model.bin"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert run("damaged")[0] == first
    assert f"{folder}: damaged: model.bin; recomputing it" in caplog.text
    assert weights.read_bytes() == whole
    (own_models / "openvino").rename(own_models / "moved")  # as an older cache, which has it
    (own_models / "moved").rename(tmp_path / "first" / "cache" / "openvino")
    for stage in ("passages", "index", "search", "evaluate"):
        (tmp_path / "first" / "cache" / stage).rename(tmp_path / stage)
    assert run("first") == (first, False)
    assert prepared(own_models) == set()
    (tmp_path / "file").touch()
    monkeypatch.setenv("BENCHMARCO_CACHE", str(tmp_path / "file" / "below"))  # cannot be made
    assert run("third") == (first, True)
    assert len(prepared(tmp_path / "third" / "cache")) == 1


def test_a_user_without_a_home_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store was a folder named `~` in the working directory."""
    for name in ("BENCHMARCO_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(InputError, match=r"user 54321 has no home.*Set HOME, or BENCHMARCO_CACHE"):
        Store(tmp_path).for_models(Recipe("openvino", {}))
