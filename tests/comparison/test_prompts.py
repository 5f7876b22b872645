"""Models over the prompts of a sweep: a real model's results, and the statistics on made-up values."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from pipeline import InputError, run_benchmark
from pipeline.cli import app
from pipeline.comparison.prompts import compare_prompts
from pipeline.metrics.crossed import best_without_optimism, crossed_mean
from pipeline.results.folder import read_result

PROMPTS = ["", "query: ", "about the weather and the sea: "]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], Path]:
    """The folders of two models, MiniLM and MiniLM cut to 16 dimensions, by dimensions and prompt."""
    folder = tmp_path_factory.mktemp("prompts")
    made = {}
    for cut in (384, 16):
        for number, prompt in enumerate(PROMPTS):
            model = {"backend": "native", "name": "all-minilm-l6-v2", "query_instruction": prompt}
            config: dict[str, Any] = {
                "name": f"d{cut}-{number}", "data": {"source": "sample", "corpus": 200, "queries": 40},
                "model": model | {"truncate_dim": cut}, "search": {"top_k": 20},
                "evaluate": {"measures": ["ndcg@10", "mrr@10"]},
                "cache": str(folder / "indexes"), "output": str(folder / "results"),
            }  # fmt: skip
            made[cut, prompt] = run_benchmark(config).folder
    return made


def test_models_over_prompts(swept: dict[tuple[int, str], Path]) -> None:
    run = CliRunner().invoke(app, ["compare", *map(str, swept.values()), "--prompts", "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    values = {key: read_result(folder).values[:, 0] for key, folder in swept.items()}
    whole, cut = (np.stack([values[size, prompt] for prompt in PROMPTS], axis=1) for size in (384, 16))
    assert found["measure"] == "ndcg@10"
    for said, own in zip(found["models"], (whole, cut), strict=True):
        means = own.mean(axis=0)
        assert said["prompts"] == 3
        assert said["mean"] == pytest.approx(own.mean())
        assert (said["worst"], said["best"]) == (means.min(), means.max())
        assert said["best_prompt"] == PROMPTS[int(means.argmax())]
        assert said["spread"] == pytest.approx(means.std(ddof=1))
        assert said["best_corrected"] <= said["best"] + 1e-12
        assert said["ci_low"] < said["mean"] < said["ci_high"]
    (pair,) = found["pairs"]
    assert pair["difference"] == pytest.approx((whole - cut).mean())
    assert (pair["shared"], pair["combinations"]) == (3, 9)
    assert pair["ahead"] == (whole.mean(axis=0) > cut.mean(axis=0)).sum()
    tables = CliRunner().invoke(app, ["compare", *map(str, swept.values()), "--prompts"])
    assert "3 prompts" in tables.stdout


def test_the_setting_runs_each_prompt_on_the_same_passages_and_ends_with_the_table(
    swept: dict[tuple[int, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    folder = next(iter(swept.values())).parent.parent
    config = {
        "name": "asked", "data": {"source": "sample", "corpus": 200, "queries": 40},
        "model": {"backend": "native", "name": "all-minilm-l6-v2", "prompts": ["", "asked: "]},
        "search": {"top_k": 20}, "evaluate": {"measures": ["ndcg@10", "mrr@10"]},
        "cache": str(folder / "indexes"), "output": str(tmp_path),
    }  # fmt: skip
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    run = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml")])
    assert run.exit_code == 0, run.output
    assert "ndcg@10 over queries and prompts" in run.stdout
    rows = json.loads((tmp_path / "asked-asked" / "metrics.json").read_text(encoding="utf-8"))["stages"]
    assert {row["stage"]: row["reused"] for row in rows if row["stage"] in ("passages", "queries")} == {
        "passages": True, "queries": False,
    }  # fmt: skip
    values = [read_result(tmp_path / f"asked-{name}").values for name in ("query_instruction-empty", "asked")]
    assert np.array_equal(values[0], read_result(swept[384, ""]).values)
    assert not np.array_equal(*values)


def test_results_that_are_no_prompts_are_refused(swept: dict[tuple[int, str], Path]) -> None:
    with pytest.raises(InputError, match="has one result"):
        compare_prompts([swept[384, ""], swept[384, "query: "], swept[16, ""]])
    with pytest.raises(InputError, match="is a second result"):
        compare_prompts([swept[384, ""], swept[384, ""]])
    run = CliRunner().invoke(app, ["compare", str(swept[384, ""]), "--prompts", "--groups"])
    assert run.exit_code == 2


def test_prompts_that_change_nothing_leave_the_interval_of_queries() -> None:
    one = np.random.default_rng(1).random(40)
    made = crossed_mean(np.stack([one, one, one], axis=1))
    low, high = stats.t.interval(0.95, 39, one.mean(), stats.sem(one))
    assert (made.low, made.high) == pytest.approx((low, high))
    assert crossed_mean(np.ones((10, 3))).low is None


def test_intervals_hold_the_mean_of_other_queries_and_prompts() -> None:
    drawn = np.random.default_rng(2)
    held = alone = 0
    for _ in range(400):
        values = drawn.normal(0, 0.3, (50, 1)) + drawn.normal(0, 0.05, 6) + drawn.normal(0, 0.1, (50, 6))
        made = crossed_mean(values)
        assert made.low is not None
        assert made.high is not None
        held += made.low < 0 < made.high
        low, high = stats.t.interval(0.95, 49, values.mean(), stats.sem(values.mean(axis=1)))
        alone += low < 0 < high
    assert 0.92 <= held / 400 <= 0.98
    assert alone < held  # intervals over queries alone are too short


def test_the_best_of_prompts_that_do_not_differ_is_no_better() -> None:
    drawn = np.random.default_rng(3)
    best, corrected = [], []
    for _ in range(60):
        values = drawn.normal(0.5, 0.3, (50, 10))
        best.append(values.mean(axis=0).max())
        corrected.append(best_without_optimism(values))
    assert np.mean(best) > 0.54
    assert abs(np.mean(corrected) - 0.5) < 0.015
    values = drawn.normal([0.5, 0.5, 0.8], 0.1, (50, 3))  # one that is better
    assert best_without_optimism(values) == pytest.approx(values[:, 2].mean())
