"""Gates: verdicts and exit codes, baselines as files, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.comparison.gate import EXIT_CODES, gate
from pipeline.core.errors import InputError
from pipeline.core.records import Float64
from pipeline.metrics.resampling import noninferiority
from pipeline.results.folder import SavedResult
from pipeline.results.records import Manifest, Metrics
from pipeline.results.suite_folder import SavedSuite

MEASURES = ("ndcg@10", "mrr")


def result(name: str, shift: float = 0, noise: float = 0, queries: int = 43) -> SavedSuite:
    values = np.random.default_rng(queries).beta(2, 1.1, (queries, 2)) + shift
    values = values + noise * np.random.default_rng(7).normal(size=values.shape)
    metrics = {
        "name": name,
        "queries": queries,
        "passages": 9,
        "metrics": dict(zip(MEASURES, values.mean(axis=0).tolist(), strict=True)),
        "stages": [],
    }
    manifest = Manifest.model_validate({"recipes": {"evaluate": {"qrels": {"qrels": "one"}}}})
    ids = [f"q{number}" for number in range(queries)]
    record = Metrics.model_validate(metrics)
    saved = SavedResult(Path("results", name), record, manifest, ids, list(MEASURES), values)
    return SavedSuite.of_one(saved)


def values_of(suite: SavedSuite) -> Float64:
    """float64 [queries, measures]."""
    return suite.results[""].values


def changed(suite: SavedSuite, **changes: Any) -> SavedSuite:
    return SavedSuite.of_one(replace(suite.results[""], **changes))


BASE = result("base")


@pytest.mark.parametrize(
    ("new", "verdict", "code"),
    [
        (result("same"), "pass", 0),
        (result("near", noise=0.005), "pass", 0),
        (result("above", shift=0.05, noise=0.05), "pass", 0),
        (result("below", shift=-0.1, noise=0.1), "fail", 3),
        (result("unsure", noise=0.2), "undecided", 4),
        (result("few", queries=20), "undecided", 4),
    ],
)
def test_a_verdict_and_its_exit_code(new: SavedSuite, verdict: str, code: int) -> None:
    made = gate(new, result("base", queries=len(values_of(new))), MEASURES)
    assert (made.verdict, EXIT_CODES[made.verdict]) == (verdict, code)
    document = json.loads(json.dumps(made.json(), allow_nan=False))
    assert document["verdict"] == verdict
    for measure in document["measures"]:
        assert list(measure) == [
            "measure", "difference", "ci_low", "ci_high", "margin", "p_not_worse", "verdict", "queries",
            "queries_needed",
        ]  # fmt: skip
        assert (measure["queries_needed"] is not None) == (measure["verdict"] == "undecided")
        if measure["verdict"] == "pass":
            assert measure["p_not_worse"] < 0.05
            assert measure["ci_low"] is None or measure["ci_low"] > -0.01
    most = max(each["queries_needed"] or 0 for each in document["measures"])
    assert (f"about {most:,} would decide" in made.message) == (verdict == "undecided")
    assert made.message in str(made)


def test_several_measures_are_corrected_by_holm() -> None:
    new = result("near", noise=0.02)
    alone = [gate(new, BASE, [measure]).measures[0].p_not_worse for measure in MEASURES]
    together = [each.p_not_worse for each in gate(new, BASE, MEASURES).measures]
    assert min(together) == pytest.approx(2 * min(alone))
    assert max(together) == pytest.approx(max(*alone, 2 * min(alone)))


FEW = np.random.default_rng(3).normal(-0.02, 0.03, 5)
UNSURE = {
    "every query differs": values_of(result("unsure", noise=0.1))[:, 1] - values_of(BASE)[:, 1],
    "few queries differ": np.where(np.arange(43) < 5, np.resize(FEW, 43), 0),  # as of two precisions
    "one in ten loses much": np.where(np.arange(43) < 4, -0.3, 0.04),
}


@pytest.mark.parametrize("differences", UNSURE.values(), ids=UNSURE)
def test_the_queries_needed_have_the_power_that_is_said(differences: Float64) -> None:
    new = changed(BASE, values=values_of(BASE) + np.column_stack([differences, differences]))
    (measure,) = gate(new, BASE, ["mrr"]).measures
    assert measure.verdict == "undecided"
    assert measure.queries_needed is not None
    drawn = np.random.default_rng(5).choice(differences, (measure.queries_needed, 1000))
    p = noninferiority([drawn], np.full(1000, 0.01), resamples=1999)[int(measure.difference < -0.01)]
    assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.05)


def test_other_queries_and_judgments_are_refused() -> None:
    with pytest.raises(InputError, match="different queries"):
        gate(BASE, result("fewer", queries=42))
    judged = Manifest.model_validate({"recipes": {"evaluate": {"qrels": {"qrels": "two"}}}})
    with pytest.raises(InputError, match="different judgments"):
        gate(BASE, changed(BASE, manifest=judged))
    with pytest.raises(InputError, match="--margin -1"):
        gate(BASE, BASE, margin=-1)
    with pytest.raises(InputError, match="--alpha 0"):
        gate(BASE, BASE, alpha=0)
    with pytest.raises(InputError, match="map is not among the measures of base"):
        gate(BASE, BASE, ["map"])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Runs the command and returns its exit code and what it printed."""
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)

    def run(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["gate", *map(str, arguments)])
        return done.exit_code, done.stdout

    return run


def test_the_command(finished: Path, tmp_path: Path, run: Callable[..., tuple[int, str]]) -> None:
    folder = finished / "results" / "t"
    kept = Path(shutil.copytree(folder, tmp_path / "kept"))
    (kept / "run.trec").unlink()
    worse = Path(shutil.copytree(folder, tmp_path / "worse"))
    head, *lines = (worse / "per_query.csv").read_text(encoding="utf-8").splitlines()
    zeros = [",".join([line.split(",")[0], *["0.0"] * line.count(",")]) for line in lines]
    (worse / "per_query.csv").write_text("\n".join([head, *zeros]) + "\n")
    metrics = json.loads((worse / "metrics.json").read_text(encoding="utf-8"))
    metrics["metrics"] = dict.fromkeys(metrics["metrics"], 0.0)
    (worse / "metrics.json").write_text(json.dumps(metrics))
    assert run(folder, "--baseline", folder)[0] == 0
    code, printed = run(worse, "--baseline", kept, "--json")
    assert (code, json.loads(printed)["verdict"]) == (3, "fail")
    code, printed = run(
        folder, "--baseline", kept, "--markdown", "--measure", "RR@10", "--measure", "ndcg@10"
    )
    assert code == 0
    assert "| mrr@10 | pass |" in printed
    assert run(folder)[0] == run(folder, "--baseline", tmp_path / "none")[0] == 2
