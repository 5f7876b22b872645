"""Models over the prompts of a sweep: a real model's results, and the statistics on made-up values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison.made import config
from scipy import stats
from workplaces import benchmarco, document, read_json

from pipeline import InputError, run_benchmark
from pipeline.comparison import compare_prompts
from pipeline.metrics import best_without_optimism, crossed_mean
from pipeline.results import read_result

PROMPTS = ["", "query: ", "about the weather and the sea: "]


def prompted(folder: Path, name: str, **model: Any) -> dict[str, Any]:
    """MiniLM on a part of the sample."""
    data = {"source": "sample", "corpus": 200, "queries": 40}
    return config(folder, name, data=data, model={"backend": "native", "name": "all-minilm-l6-v2", **model})


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], Path]:
    """The folders of two models, MiniLM and MiniLM cut to 16 dimensions, by dimensions and prompt."""
    folder = tmp_path_factory.mktemp("prompts")
    return {
        (cut, prompt): run_benchmark(
            prompted(folder, f"d{cut}-{number}", query_instruction=prompt, truncate_dim=cut)
        ).folder
        for cut in (384, 16)
        for number, prompt in enumerate(PROMPTS)
    }


def test_models_over_prompts(swept: dict[tuple[int, str], Path]) -> None:
    found = document("compare", *swept.values(), "--prompts")
    values = {key: read_result(folder).only_collection().values[:, 0] for key, folder in swept.items()}
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
    assert "3 prompts" in benchmarco("compare", *swept.values(), "--prompts").stdout


def test_the_setting_runs_each_prompt_on_the_same_passages_and_ends_with_the_table(
    swept: dict[tuple[int, str], Path],
) -> None:
    folder = swept[384, ""].parent
    written = prompted(folder.parent, "asked", prompts=["", "asked: "])
    (folder / "c.yaml").write_text(json.dumps(written), encoding="utf-8")
    run = benchmarco("run", folder / "c.yaml")
    assert "ndcg@10 over queries and prompts" in run.stdout
    rows = read_json(folder / "asked-asked" / "metrics.json")["stages"]
    reused = {row["stage"]: row["reused"] for row in rows}
    assert (reused["passages"], reused["queries"]) == (True, False)
    values = [
        read_result(folder / f"asked-{name}").only_collection().values
        for name in ("query_instruction-empty", "asked")
    ]
    assert np.array_equal(values[0], read_result(swept[384, ""]).only_collection().values)
    assert not np.array_equal(*values)


def test_results_that_are_no_prompts_are_refused(swept: dict[tuple[int, str], Path]) -> None:
    with pytest.raises(InputError, match="has one result"):
        compare_prompts([swept[384, ""], swept[384, "query: "], swept[16, ""]])
    with pytest.raises(InputError, match="is a second result"):
        compare_prompts([swept[384, ""], swept[384, ""]])
    benchmarco("compare", swept[384, ""], "--prompts", "--groups", code=2)


def test_prompts_that_change_nothing_leave_the_interval_of_queries() -> None:
    one = np.random.default_rng(1).random(40)
    made = crossed_mean(np.stack([one, one, one], axis=1))
    low, high = stats.t.interval(0.95, 39, one.mean(), stats.sem(one))
    assert (made.low, made.high) == pytest.approx((low, high))
    assert crossed_mean(np.ones((10, 3))).low is None


def test_intervals_hold_the_mean_of_other_queries_and_prompts() -> None:
    drawn = np.random.default_rng(2)
    held = alone = 0
    for _ in range(200):
        values = drawn.normal(0, 0.3, (50, 1)) + drawn.normal(0, 0.05, 6) + drawn.normal(0, 0.1, (50, 6))
        made = crossed_mean(values)
        held += made.low < 0 < made.high
        low, high = stats.t.interval(0.95, 49, values.mean(), stats.sem(values.mean(axis=1)))
        alone += low < 0 < high
    assert 0.9 <= held / 200 <= 0.99
    assert alone < held  # intervals over queries alone are too short


def test_the_best_of_prompts_that_do_not_differ_is_no_better() -> None:
    drawn = np.random.default_rng(3)
    best, corrected = [], []
    for _ in range(40):
        values = drawn.normal(0.5, 0.3, (50, 10))
        best.append(values.mean(axis=0).max())
        corrected.append(best_without_optimism(values))
    assert np.mean(best) > 0.54
    assert abs(np.mean(corrected) - 0.5) < 0.02
    values = drawn.normal([0.5, 0.5, 0.8], 0.1, (50, 3))  # one that is better
    assert best_without_optimism(values) == pytest.approx(values[:, 2].mean())
