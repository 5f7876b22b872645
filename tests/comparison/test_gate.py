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
from pipeline.comparison.gate import EXIT_CODES, ORDER_SEED, gate
from pipeline.comparison.inputs import draw_order
from pipeline.core.errors import InputError
from pipeline.core.records import Float64
from pipeline.metrics import resampling
from pipeline.metrics.betting import Bets
from pipeline.metrics.resampling import equivalence, noninferiority
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
        (result("same", queries=400), "pass", 0),  # none of 400 loses anything: exp(-4) is 2%, and twice that
        (result("same"), "undecided", 4),
        (result("near", noise=0.005, queries=150), "pass", 0),
        (
            result("near", noise=0.005),
            "undecided",
            4,
        ),  # one loss that is not among 43 could be twice the margin
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


def by_rates(queries: int, wins: float, losses: float, samples: int = 2000) -> Float64:
    """Differences of a binary measure, float64 [queries, samples]."""
    drawn = np.random.default_rng(queries).random((queries, samples))
    return np.where(drawn < wins, 1.0, np.where(drawn < wins + losses, -1.0, 0.0))


@pytest.mark.parametrize("queries", [25, 43, 114, 300])
@pytest.mark.parametrize("wins", [0.0, 0.01, 0.1])
def test_of_results_worse_by_the_margin_at_most_six_in_a_hundred_pass(
    queries: int, wins: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a binary measure with rare losses 45, 32 and 12 in a hundred passed by their spread alone."""
    monkeypatch.setattr(resampling, "RESAMPLES", 500)
    differences = by_rates(queries, wins, wins + 0.01)
    halves = [differences[: queries // 2], differences[queries // 2 :]]
    margins, most = np.full(2000, 0.01), 0.06 + 0.016  # and three errors of 2,000 samples
    assert (noninferiority([differences], margins)[0] < 0.05).mean() <= most
    assert (noninferiority(halves, margins, np.array([0.5, 0.5]))[0] < 0.05).mean() <= most
    assert (equivalence([differences], 0.01) < 0.05).mean() <= most


def test_a_pass_says_what_it_does_not_exclude() -> None:
    made = gate(result("near", noise=0.005), BASE, margin=0.03)
    assert made.unseen == pytest.approx(np.log(20) / 43)
    assert "not excluded: up to 7% of the queries (3 / 43) lose everything, unseen" in made.message
    assert made.json()["unseen"] == made.unseen


def test_a_guarantee_is_by_bets() -> None:
    new = result("new", noise=0.05, queries=400)
    old = result("base", queries=400)
    by_t, by_bets = gate(new, old, margin=0.03), gate(new, old, margin=0.03, guarantee=True)
    assert (by_t.verdict, by_bets.verdict) == ("pass", "pass")
    (measure,) = by_bets.measures
    differences = (values_of(new) - values_of(old))[:, 0]
    assert measure.p_not_worse == pytest.approx(Bets.of_one(differences).p_value(-0.03))
    assert measure.ci_low == pytest.approx(Bets.of_one(differences).lower_bound(0.05))
    assert measure.ci_low < by_t.measures[0].ci_low < by_t.measures[0].ci_high < measure.ci_high
    assert "whatever the distribution" in by_bets.message
    few = gate(result("near", noise=0.005), BASE, guarantee=True)
    assert few.verdict == "undecided"
    assert "a guarantee takes ln(1 / 0.05) / 0.01 = 300 at least" in few.message
    needed = few.measures[0].queries_needed
    assert needed is not None
    assert 300 <= needed < 600
    worse = gate(result("below", shift=-0.3, noise=0.1), BASE, guarantee=True)
    assert worse.verdict == "fail"
    unbounded = changed(BASE, measures=["dcg@10", "mrr"])
    with pytest.raises(InputError, match="--guarantee with dcg@10"):
        gate(unbounded, unbounded, guarantee=True)


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


def test_in_sequence_a_gate_says_after_how_many_queries_it_is_decided() -> None:
    old, worse = result("old", queries=300), result("worse", shift=-0.3, noise=0.1, queries=300)
    made = gate(worse, old, sequential=True)
    assert made.verdict == "fail"
    assert made.stopped_after
    assert 5 < made.stopped_after < 150
    assert f"decided after {made.stopped_after} of 300 queries" in made.message
    # the queries after it are not needed: without them it is decided after the same number
    ids = old.results[""].query_ids
    first = draw_order(ids, ORDER_SEED)[: made.stopped_after]
    parts = [
        changed(each, query_ids=[ids[row] for row in first], values=values_of(each)[first])
        for each in (worse, old)
    ]
    assert gate(*parts, sequential=True).stopped_after == made.stopped_after
    assert gate(*parts, sequential=True).verdict == "fail"
    near = gate(result("near", noise=0.02, queries=43), BASE, sequential=True)
    assert (near.verdict, near.stopped_after) == ("undecided", None)
