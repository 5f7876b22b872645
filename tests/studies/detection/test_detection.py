"""How many queries detect a difference, before anything is run."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from workplaces import benchmarco, document, on_one_line, seal

from pipeline import InputError, compare
from pipeline.results import read_result
from pipeline.studies.detection import plan_detection
from pipeline.studies.gate import gate_result


@pytest.mark.parametrize(("results", "pairs"), [(1, 1), (2, 1), (6, 15)])
def test_so_many_queries_have_the_power(results: int, pairs: int) -> None:
    planned = plan_detection(0.05, ["0.2"], results)
    assert planned.pairs == pairs
    for queries, enough in ((planned.queries - 1, False), (planned.queries, True)):
        quantile = stats.t.ppf(1 - 0.025 / pairs, queries - 1)
        power = stats.nct.sf(quantile, queries - 1, 0.05 / 0.2 * queries**0.5)
        assert (power >= 0.8) == enough
    assert planned.detects(planned.queries) == pytest.approx(0.05, rel=0.01)


def test_the_spread_is_that_of_results(finished: Path) -> None:
    folder = finished / "results" / "t"
    arguments = "plan", finished / "c.yaml", "--set", f"cache={finished}/indexes"
    detection = "--detect", "0.02", "--spread", folder
    planned = document(*arguments, *detection)
    detect, queries = planned["detect"], planned["queries"]
    assert queries == 114
    assert detect["spread"] == pytest.approx(read_result(folder).values(["ndcg@10"])[0].std(ddof=1))
    assert detect["detects"] == pytest.approx(0.02 * (detect["queries"] / queries) ** 0.5, rel=0.05)
    said = on_one_line(benchmarco(*arguments, *detection))
    assert f"a difference of 0.02 takes about {detect['queries']:,} queries" in said
    assert "--spread without --detect" in on_one_line(benchmarco(*arguments, *detection[2:], code=2))


def test_plan_compare_and_gate_give_one_number(finished: Path, tmp_path: Path) -> None:
    one, other = finished / "results" / "t", tmp_path / "other"
    shutil.copytree(one, other)
    first, *lines = (other / "per_query.csv").read_text(encoding="utf-8").splitlines()
    ids, values = zip(*(line.split(",", 1) for line in lines), strict=True)
    order = [n + (n % 3 == 0) - (n % 3 == 1) for n in range(len(lines))]  # two of three exchanged
    near = [f"{query},{values[n]}" for query, n in zip(ids, order, strict=True)]
    (other / "per_query.csv").write_text("\n".join([first, *near]) + "\n", encoding="utf-8")
    seal(other)
    planned = plan_detection(0.01, [str(one), str(other)], 2)
    (pair,) = compare([one, other], detect=0.01).pairs
    assert planned.queries == pair.queries_to_detect
    gated = gate_result(other, one).measures[0]
    assert (gated.verdict, gated.queries_needed) == ("undecided", planned.gate_queries)
    for number in (planned.queries, planned.gate_queries):
        assert f"{number:,} " in planned.sentence("t", 114)


@pytest.mark.parametrize(
    ("difference", "spread", "message"),
    [
        (0.0, ["0.2"], "--detect 0.0"),
        (np.nan, ["0.2"], "--detect nan"),
        (0.01, ["-1"], "a spread of -1"),
        (0.01, ["nan"], "a spread of nan"),
        (0.01, [], "--spread is missing"),
        (0.01, ["0.1", "0.2"], "--spread 0.1 0.2"),
        (0.01, ["nowhere"], "--spread nowhere"),
        (1e-300, ["1"], "no number of queries"),
    ],
)
def test_what_plans_nothing_is_refused(difference: float, spread: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_detection(difference, spread, 2)
