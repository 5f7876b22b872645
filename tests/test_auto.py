"""Runs that leave the backend to `auto`: what they share with others, and the check of its vectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workplaces

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.encoders import native
from pipeline.results.folder import Result
from pipeline.results.tables import result_table

pytestmark = pytest.mark.usefixtures("quick_conversion", "_vnni")


@pytest.fixture
def _vnni(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels count as fast, whatever processor this is."""
    monkeypatch.setattr(machine, "has_vnni", lambda: True)


@pytest.fixture
def run(workplace: Path) -> Callable[..., Result]:
    """Runs the config of a finished benchmark with other settings, beside what that left in the cache."""
    return partial(workplaces.run, workplace)


def ran(result: Result) -> list[tuple[str, str, bool]]:
    """The backend and the precision of each model, and whether `auto` took them."""
    return [(model.backend, model.precision, model.auto) for model in result.record.models]


def computed(result: Result) -> list[str]:
    return [row.stage for row in result.record.all_stages if row.outcome == "computed"]


AUTO = ("name=a", "model.backend=auto")


def test_auto_and_the_backend_that_it_takes_share_all_they_compute(
    run: Callable[..., Result], workplace: Path
) -> None:
    first, named = run(*AUTO), run("name=n", "model.backend=native")
    assert (ran(first), ran(named)) == ([("native", "int16", True)], [("native", "int16", False)])
    assert computed(first) == ["passages", "queries", "index", "search", "evaluate"]
    assert computed(named) == []
    manifest = json.loads((workplace / "results" / "a" / "manifest.json").read_text(encoding="utf-8"))
    settings, used = manifest["config"]["model"], manifest["models"][0]["settings"]
    assert (settings["backend"], settings["precision"]) == ("native", "int16")
    assert used["backend"] == {"value": "native", "source": "auto"}
    assert used["precision"] == {"value": "int16", "source": "auto"}
    noted = "bge-small-en-v1.5: run by backend native in int16, which auto took."
    assert noted in result_table(first.record).notes
    assert not any("auto" in note for note in result_table(named.record).notes)


@pytest.mark.usefixtures("own_models")
def test_a_packed_model_that_differs_ends_the_run(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "disagreement", lambda *_: "a text of 9 tokens is far off")
    for _ in range(2):  # nothing is remembered
        with pytest.raises(InputError, match=r"cannot be computed in int16: .* Set model\.backend to"):
            run(*AUTO)


def test_a_text_whose_vector_differs_ends_the_run(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def far_off(self: Any, batch: Any) -> Any:
        return np.roll(self.network.vectors(batch.ids, batch.mask), 1, axis=1)

    monkeypatch.setattr(native.NativeBackend, "compute", far_off)
    with pytest.raises(InputError, match=r"in int16, the vector of a text .* Set model\.backend to openvino"):
        run(*AUTO)


def test_rerankers_are_chosen_alike(run: Callable[..., Result], reranker: Callable[[str], Path]) -> None:
    rerank = f"rerank={{backend: %s, name: {reranker('bert')}, depth: 2}}"
    auto = run("name=a", "model={backend: bm25}", rerank % "auto")
    assert ran(auto) == [("openvino", "fp32", True)]
    named = run("name=n", "model={backend: bm25}", rerank % "openvino")
    assert ran(named) == [("openvino", "fp32", False)]
    assert computed(named) == []
