"""Results in experiment trackers, whose packages are stood in for by ones that note what they are given."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from comparison.made import config
from workplaces import benchmarco

from pipeline import run_benchmark
from pipeline.studies.export import WRITERS, figures_of, track


class Recorder:
    """Notes each call of any of its functions, and is what they return."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> "Recorder":
            self.calls.append((name, given, named))
            return self

        return call

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append(("end", (), {}))

    def given(self, name: str) -> list[Any]:
        return [given[0] if given else named for called, given, named in self.calls if called == name]


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    return run_benchmark(config(tmp_path, "bm25"))


@pytest.mark.parametrize("tracker", WRITERS)
def test_a_result_is_written_to_a_tracker(result: Any, tracker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: Any = Recorder()
    module: Any = ModuleType(tracker)
    if tracker == "tensorboard":
        summary: Any = ModuleType("tensorboard.summary")
        summary.Writer = lambda folder: (Path(folder).mkdir(parents=True), notes)[1]
        monkeypatch.setitem(sys.modules, "tensorboard.summary", summary)
    for name in (
        "init",
        "Artifact",
        "set_experiment",
        "start_run",
        "log_params",
        "log_metrics",
        "log_artifact",
    ):
        setattr(module, name, getattr(notes, name))
    monkeypatch.setitem(sys.modules, tracker, module)
    track(result, tracker)
    figures = figures_of(result)
    low, high = result.record.intervals["ndcg@10"]
    assert (figures["ndcg@10"], figures["ndcg@10/low"], figures["ndcg@10/high"]) == (
        result.metrics["ndcg@10"], low, high,
    )  # fmt: skip
    if tracker == "wandb":
        assert notes.given("init")[0]["config"]["search.top_k"] == 20
        assert notes.given("log") == [figures]
        assert notes.given("add_file") == [str(result.folder / "manifest.json")]
    elif tracker == "mlflow":
        assert notes.given("log_params")[0]["search.top_k"] == "20"
        assert notes.given("log_metrics")[0]["ndcg_at_10.low"] == low
        assert notes.given("log_artifact") == [str(result.folder / "manifest.json")]
    else:
        scalars = {given[0]: given[1] for name, given, _ in notes.calls if name == "add_scalar"}
        assert scalars == figures
        assert Path("runs/bm25/bm25.json").is_file()


def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_written(
    result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(tmp_path.rglob("*"))
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *_: None if name == "wandb" else SimpleNamespace()
    )
    assert "needs the package wandb" in benchmarco("export", result.folder, "--track", "wandb", code=2).stderr
    assert set(tmp_path.rglob("*")) == before
