"""Gates: verdicts and exit codes, baselines as files, and what is refused."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from comparison.made import MEASURES, THREE, make, result, single, values_of, with_values
from scipy.stats import sem
from workplaces import benchmarco, document, process, read_json, seal

from pipeline import InputError, compare, metrics
from pipeline.core import interval
from pipeline.results import Result
from pipeline.studies.gate import EXIT_CODES, Bets, Gates, gate_result, gate_results
from pipeline.studies.page import QueryData


def made(name: str, shift: float = 0, noise: float = 0, queries: int = 43) -> Result:
    """A result whose values are those of others of as many queries, but for shift and noise."""
    values = np.random.default_rng(queries).beta(2, 1.1, (queries, 2)) + shift
    values = values + noise * np.random.default_rng(7).normal(size=values.shape)
    return single(result(name, values))


BASE = made("base")


@pytest.mark.parametrize(
    ("new", "verdict", "code"),
    [
        (made("same", queries=400), "pass", 0),
        (made("same"), "pass", 0),
        (made("near", noise=1e-4), "pass", 0),
        (made("few", noise=1e-4, queries=8), "pass", 0),
        (made("near", noise=0.005, queries=150), "pass", 0),
        (made("above", shift=0.1, noise=0.05), "pass", 0),
        (made("below", shift=-0.05, noise=0.005), "fail", 3),
        (made("below", shift=-0.1, noise=0.1), "fail", 3),
        (made("unsure", noise=0.2), "undecided", 4),
        (made("few", noise=0.2, queries=10), "undecided", 4),
    ],
)
def test_a_verdict_and_its_exit_code(new: Result, verdict: str, code: int) -> None:
    found = gate_result(new, made("base", queries=len(values_of(new))), MEASURES)
    assert (found.verdict, EXIT_CODES[found.verdict]) == (verdict, code)
    document = json.loads(json.dumps(found.json(), allow_nan=False))
    assert document["verdict"] == verdict
    for measure in document["measures"]:
        assert list(measure) == [
            "measure", "difference", "ci_low", "ci_high", "margin", "p_not_worse", "verdict", "queries",
            "queries_needed", "detectable", "p", "fragile", "p_lower", "interval_fragile",
        ]  # fmt: skip
        assert (measure["queries_needed"] is not None) == (measure["verdict"] == "undecided")
        if measure["verdict"] == "pass":
            assert measure["p_not_worse"] < 0.05
            assert measure["ci_low"] is None or measure["ci_low"] > -0.01
    if verdict == "undecided":
        most = max(each["queries_needed"] for each in document["measures"] if each["queries_needed"])
        loss = max(each["detectable"] for each in document["measures"] if each["verdict"] == "undecided")
        queries = document["measures"][0]["queries"]
        assert f"too few queries: {queries} can exclude a loss of {loss:.2g}, and " in found.message
        assert found.message.endswith(f"a loss of 0.01 takes about {most:,} queries")
    assert found.message in str(found)


def test_a_pass_that_one_lost_query_more_would_undo_is_marked() -> None:
    for queries, fragile in ((43, True), (150, True), (400, False)):
        found = gate_result(made("near", noise=1e-4, queries=queries), made("base", queries=queries))
        assert (found.verdict, found.fragile) == ("pass", fragile)
        assert ("pass~: near does not lose" in found.message) == fragile
        assert ("unless one query more loses everything" in str(found)) == fragile


def test_a_fail_that_one_gained_query_more_would_undo_is_marked() -> None:
    for shift, fragile in ((-0.025, True), (-0.1, False)):
        found = gate_result(made("below", shift=shift, noise=0.005), BASE)
        (measure,) = found.json()["measures"]
        assert (found.verdict, measure["verdict"], measure["fragile"]) == ("fail", "fail", fragile)
        assert ("fail~: below is worse than base" in found.message) == fragile
        assert ("unless one query more gains everything" in str(found)) == fragile
        assert Gates([found]).exit_code(no_fragile=True) == 3


def test_several_results_have_one_table_and_the_worst_code() -> None:
    near, unsure = made("near", noise=1e-4), made("unsure", noise=0.2)
    below = made("below", shift=-0.1, noise=0.1)
    for results, verdict, code in (
        ([near, made("same")], "pass", 0),
        ([near, unsure], "undecided", 4),
        ([below, near, unsure], "fail", 3),
    ):
        found = gate_results(results, BASE)
        alone = [gate_result(each, BASE) for each in results]
        assert [each.message for each in found.gates] == [each.message for each in alone]
        assert (found.verdict, found.exit_code()) == (verdict, code)
        (table,) = found.tables()
        assert [row[0] for row in table.rows] == [each.name for each in results]
        assert all(f"{each.message}." in table.notes for each in alone)
        document = json.loads(json.dumps(found.json()))
        assert [each["result"] for each in document["results"]] == [each.name for each in results]
        assert document["verdict"] == verdict
        for gate, one in zip(document["results"], alone, strict=True):
            assert gate["measures"][0] == pytest.approx(one.json()["measures"][0])
    assert gate_results([near, unsure], BASE).exit_code(allow_undecided=True) == 0
    assert gate_results([near, made("same")], BASE).exit_code(no_fragile=True) == 4


def test_holm_corrects_for_the_number_of_results() -> None:
    results = [made(f"near-{noise}", noise=noise) for noise in (0.15, 0.2)]
    alone = [gate_result(each, BASE, margin=0.1).measures[0].p_not_worse for each in results]
    gates = gate_results(results, BASE, margin=0.1, corrected=True).gates
    together = [gate.measures[0].p_not_worse for gate in gates]
    assert min(together) == pytest.approx(2 * min(alone))
    assert max(together) == pytest.approx(max(*alone, 2 * min(alone)))


def test_a_loss_that_is_significant_and_may_be_below_the_margin_is_named() -> None:
    found = gate_result(made("lower", shift=-0.003, noise=0.02), BASE)
    assert found.verdict == "undecided"
    p = found.measures[0].p_lower
    assert p < 0.05
    assert f"lower than base (p = {p:.3f}), but maybe by less than 0.01" in found.message


def test_compare_gate_and_page_show_one_interval() -> None:
    random = np.random.default_rng(0)
    marked = 0
    for number in range(30):
        # few differing queries, ties and unbounded measures among them
        queries = int(random.choice([6, 12, 43]))
        measures = ("dcg@10", "mrr") if number % 3 == 0 else MEASURES
        values = random.random((2, queries, 2)) * (random.random((2, queries, 2)) < random.random())
        old, new = (
            single(result(name, each, measures)) for name, each in zip(("old", "new"), values, strict=True)
        )
        comparison = compare([new, old], baseline="old")
        (pair,), gate = comparison.pairs, gate_result(new, old)
        (gated,) = gate.measures
        ends = pair.ci_low, pair.ci_high, pair.fragile
        assert (gated.ci_low, gated.ci_high, gated.interval_fragile) == ends
        data = QueryData(1, [], [], {}, {}, []).json(comparison)
        assert tuple(data["pairs"][0][3:6]) == ends
        assert interval(*ends, "+.4f") in str(gate)
        assert interval(*ends, "+.4f", "[{}, {}]") in str(comparison)
        marked += pair.fragile
    assert 0 < marked < 30


def test_verdicts_on_macro_means() -> None:
    old = make("old", 1, sizes=THREE)
    verdicts = {
        name: gate_result(make("new", seed, better, THREE), old, margin=margin).measures[0]
        for name, seed, better, margin in (
            ("same", 1, (0, 0, 0), 0.01),
            ("worse", 3, (-0.1, -0.1, 0), 0.01),
            ("better", 4, (0.1, 0.1, 0), 0.01),
            ("near", 2, (0, 0, 0), 0.03),
            ("undecided", 2, (0, 0, 0), 0.001),
        )
    }
    assert {name: each.verdict for name, each in verdicts.items()} == {
        "same": "pass", "worse": "fail", "better": "pass", "near": "pass",
        "undecided": "undecided",
    }  # fmt: skip
    found = verdicts["undecided"]
    (pair,) = compare([make("near", 2, sizes=THREE), old]).pairs
    assert found.difference == pytest.approx(pair.difference)
    assert found.ci_low < found.difference < found.ci_high
    assert found.queries == 130
    assert found.queries_needed > 130


def test_a_guarantee_is_by_bets() -> None:
    new, old = made("new", noise=0.05, queries=400), made("base", queries=400)
    by_t, by_bets = gate_result(new, old, margin=0.03), gate_result(new, old, margin=0.03, guarantee=True)
    assert (by_t.verdict, by_bets.verdict) == ("pass", "pass")
    (measure,) = by_bets.measures
    differences = (values_of(new) - values_of(old))[:, 0]
    assert measure.p_not_worse == pytest.approx(Bets.of_one(differences).p_value(-0.03))
    assert measure.ci_low == pytest.approx(Bets.of_one(differences).lower_bound(0.05))
    assert measure.ci_low < by_t.measures[0].ci_low < by_t.measures[0].ci_high < measure.ci_high
    assert "whatever the distribution" in by_bets.message
    few = gate_result(made("near", noise=0.005), BASE, guarantee=True)
    assert few.verdict == "undecided"
    assert few.measures[0].queries_needed == pytest.approx(418, abs=3)  # as where no query differs
    worse = gate_result(made("below", shift=-0.3, noise=0.1), BASE, guarantee=True)
    assert worse.verdict == "fail"


def test_several_measures_are_corrected_by_holm() -> None:
    new = made("near", noise=0.2)
    alone = [gate_result(new, BASE, [measure], 0.1).measures[0].p_not_worse for measure in MEASURES]
    together = [each.p_not_worse for each in gate_result(new, BASE, MEASURES, 0.1).measures]
    assert min(together) == pytest.approx(2 * min(alone))
    assert max(together) == pytest.approx(max(*alone, 2 * min(alone)))


def test_what_queries_detect_does_not_depend_on_the_difference_that_chance_made() -> None:
    base = made("base", queries=150)
    gated = [
        gate_result(with_values(base, values_of(made("new", noise=0.1, queries=150)) + shift), base).measures[
            0
        ]
        for shift in (0, 0.001, 0.004)
    ]
    assert {each.verdict for each in gated} == {"undecided"}
    assert len({round(each.detectable, 9) for each in gated}) == 1
    assert len({each.queries_needed for each in gated}) == 1
    error = sem(values_of(made("new", noise=0.1, queries=150)) - values_of(base))[0]
    loss = metrics.detectable_difference(error, 149, 0.05)
    assert gated[0].detectable == pytest.approx(loss)
    enough = metrics.queries_needed(0.01 / error / 150**0.5, 0.05)
    assert gated[0].queries_needed == enough


def test_a_release_of_record_is_gated_against_as_well() -> None:
    first = made("v1", queries=400)
    last = with_values(first, values_of(first) - 0.025)
    new = with_values(first, values_of(first) - 0.03)
    alone = gate_result(new, last, margin=0.02)
    assert (alone.verdict, alone.since) == ("pass", None)
    both = gate_result(new, last, margin=0.02, since=first)
    assert (both.verdict, both.since.verdict) == ("fail", "fail")
    assert both.measures == alone.measures
    assert "pass: " in both.message
    assert "fail: " in both.message
    assert both.json()["since"]["verdict"] == both.json()["verdict"] == "fail"
    (table,) = both.tables()
    assert [(row[0], row[2]) for row in table.rows] == [
        (both.baseline, "pass"),
        (both.since.baseline, "fail"),
    ]
    assert gate_result(new, last, margin=0.05, since=first).verdict == "pass"
    assert gate_result(new, last, margin=0.03, since=first).verdict == "undecided"


UNBOUNDED = single(result("dcg", values_of(BASE), ["dcg@10", "mrr"]))


def test_what_cannot_be_decided_is_refused() -> None:
    for message, new, settings in (
        ("different queries", made("fewer", queries=42), {}),
        ("--margin -1", BASE, {"margin": -1}),
        ("--alpha 0", BASE, {"alpha": 0}),
        ("map is not among the measures of base", BASE, {"measures": ["map"]}),
    ):
        with pytest.raises(InputError, match=message):
            gate_result(new, BASE, **settings)
    with pytest.raises(InputError, match=r"--guarantee with dcg@10"):
        gate_result(UNBOUNDED, UNBOUNDED, guarantee=True)


def rescored(folder: Path, place: Path, change: Callable[[np.ndarray], np.ndarray]) -> Path:
    """A copy of a result whose values per query, float64 [queries, measures], are changed."""
    shutil.copytree(folder, place)
    head, *lines = (place / "per_query.csv").read_text(encoding="utf-8").splitlines()
    ids, *columns = zip(*(line.split(",") for line in lines), strict=True)
    values = np.clip(change(np.array(columns, np.float64).T), 0, 1)
    rows = [",".join([name, *map(repr, row)]) for name, row in zip(ids, values.tolist(), strict=True)]
    (place / "per_query.csv").write_text("\n".join([head, *rows]) + "\n")
    metrics = read_json(place / "metrics.json")
    metrics["metrics"] = dict(zip(metrics["metrics"], values.mean(axis=0).tolist(), strict=True))
    (place / "metrics.json").write_text(json.dumps(metrics))
    seal(place)
    return place


def test_the_command_of_each_kind_ends_with_its_code(finished: Path, tmp_path: Path) -> None:
    folder, draw = finished / "results" / "t", np.random.default_rng(0).normal
    kept = Path(shutil.copytree(folder, tmp_path / "kept"))
    (kept / "run.trec").unlink()
    near = rescored(folder, tmp_path / "near", lambda values: values + 1e-4 * draw(size=values.shape))
    unsure = rescored(folder, tmp_path / "unsure", lambda values: values[::-1])
    worse = rescored(folder, tmp_path / "worse", np.zeros_like)
    for options, code, said in (
        ([folder], 0, "pass: "),
        ([near], 0, "pass~: "),
        ([near, "--no-fragile"], 4, "pass~: "),
        ([worse], 3, "fail"),
        ([unsure], 4, "undecided: "),
        ([unsure, "--allow-undecided"], 0, "undecided: "),
        ([near, unsure, "--no-fragile", "--allow-undecided"], 0, "2 results against"),
        ([near, worse, "--allow-undecided"], 3, "2 results against"),
        ([], 2, ""),
    ):
        assert benchmarco("gate", *options, "--baseline", kept, code=code).stdout.startswith(said)
    shell = f"{sys.executable} -m pipeline gate worse --baseline kept --markdown > summary; echo $?"
    assert process(tmp_path, "sh", "-c", shell).stdout == "3\n"
    assert (tmp_path / "summary").read_text().startswith("fail")
    both = document("gate", folder, worse, "--baseline", kept, "--holm", code=3)
    assert [each["verdict"] for each in both["results"]] == ["pass", "fail"]
    measures = "--measure", "RR@10", "--measure", "ndcg@10"
    text = benchmarco("gate", folder, "--baseline", kept, "--markdown", *measures).stdout
    assert "| mrr@10 | pass |" in text
    for baseline in ([], ["--baseline", tmp_path / "none"]):
        benchmarco("gate", folder, *baseline, code=2)


def test_compare_shows_the_verdict_on_each_against_the_first(results: list[Path]) -> None:
    names = ["--measure", "ndcg@10", "--margin", "0.01"]
    found = document("compare", *results, *names)["results"]
    gated = gate_result(results[1], results[0], ["ndcg@10"]).measures[0]
    assert [each["gate"] and each["gate"]["verdict"] for each in found] == [None, gated.verdict]
    assert f"{gated.mark} " in f"{benchmarco('compare', *results, *names).stdout} "
