"""Comparisons of results and of suites: what they say, by plain NumPy and SciPy, and which they refuse."""

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison.made import ONE, THREE, changed, config, make, result, single, suite, values_of, with_values
from scipy import stats
from workplaces import benchmarco, document, on_one_line, read_json

from pipeline import InputError, compare, load_configs, run_benchmarks
from pipeline.core import Hardware
from pipeline.metrics import holm
from pipeline.report import latex, markdown
from pipeline.results import Result
from pipeline.studies.gate import gate_result

over_strata = pytest.mark.parametrize("sizes", [ONE, THREE], ids=["one collection", "three collections"])


def trio(sizes: dict[str, int]) -> tuple[list[Result], list[list[np.ndarray]]]:
    """Three results of which the second is better on two collections, and their values by collection."""
    suites = [
        make("one", 1, sizes=sizes),
        make("two", 2, (0.16, 0.16, 0), sizes),
        make("three", 3, sizes=sizes),
    ]
    return suites, [
        [each.collections[number].values[:, 0] for each in suites] for number in range(len(sizes))
    ]


@over_strata
def test_what_it_says_is_what_plain_formulas_say(sizes: dict[str, int]) -> None:
    suites, columns = trio(sizes)
    made = compare(suites)
    assert (made.measure, made.of_suites) == ("ndcg@10", sizes is THREE)
    count, queries = len(sizes), sum(sizes.values())
    by_collection = np.array([[values.mean() for values in row] for row in columns])
    for number, entry in enumerate(made.results):
        assert entry.mean == pytest.approx(by_collection[:, number].mean(), abs=1e-12)
        assert list(entry.by_collection.values()) == pytest.approx(
            by_collection[:, number] if sizes is THREE else []
        )
        assert entry.best == (by_collection.argmax(axis=1) == number).sum()
        assert (entry.queries, entry.seconds) == (queries, 4.5 * count)
        _, error, freedom = by_satterthwaite([row[number] for row in columns])
        reach = stats.t.ppf(0.975, freedom) * error
        assert (entry.ci_low, entry.ci_high) == pytest.approx((entry.mean - reach, entry.mean + reach))
    order = sorted(range(3), key=lambda number: -made.results[number].mean)  # the better one comes first
    names = [entry.name for entry in made.results]
    assert [(pair.a, pair.b) for pair in made.pairs] == [*combinations([names[n] for n in order], 2)]
    generator = np.random.default_rng(99)
    for pair, (a, b) in zip(made.pairs, combinations(order, 2), strict=True):
        differences = [row[a] - row[b] for row in columns]
        mean = float(np.mean([each.mean() for each in differences]))
        assert pair.difference == pytest.approx(mean, abs=1e-12)
        p, error, _ = by_satterthwaite(differences)
        assert pair.p_ttest == pytest.approx(p, abs=1e-12)
        flat = np.concatenate([each / len(each) / count for each in differences])
        signs = generator.choice([-1.0, 1.0], (20_000, len(flat)))
        p = (1 + (np.abs(signs @ flat) >= abs(flat.sum())).sum()) / 20_001
        assert pair.p_randomization == pytest.approx(p, abs=0.012)
        assert pair.spread == pytest.approx(error * queries**0.5)
        for each, values in zip(pair.collections, differences if sizes is THREE else (), strict=True):
            assert each.difference == pytest.approx(values.mean(), abs=1e-12)
            assert each.p_ttest == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=1e-9)
        units = [each.mean() for each in differences] if sizes is THREE else differences[0]
        assert (pair.wins, pair.losses) == (np.greater(units, 0).sum(), np.less(units, 0).sum())
    each = [each for pair in made.pairs for each in pair.collections]
    # the t-test's where no randomization reaches the difference: only the observed one, of 20,001
    both = [(one.p_ttest, one.p_randomization) for one in each]
    larger = np.array([max(t, chance) if chance > 1.5 / 20_001 else t for t, chance in both])
    assert [one.p_holm for one in each] == pytest.approx(holm(larger).tolist())  # one family
    assert [pair.p_holm for pair in made.pairs] == pytest.approx(
        holm(np.array([pair.p_ttest for pair in made.pairs])).tolist()
    )


def by_satterthwaite(differences: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """Of the mean of means: the two-sided p, the standard error, and the degrees of freedom."""
    variances = np.array([each.var(ddof=1) / len(each) / len(differences) ** 2 for each in differences])
    squares = sum(v**2 / (len(d) - 1) for v, d in zip(variances, differences, strict=True))
    error = float(variances.sum() ** 0.5)
    t, freedom = abs(np.mean([each.mean() for each in differences])) / error, error**4 / float(squares)
    return float(2 * stats.t.sf(t, freedom)), error, freedom


def test_of_two_results_one_pair_is_all_pairs_and_queries_are_matched_by_id() -> None:
    one, two = make("one", 1), make("two", 2, (0.05,))
    comparison = compare([one, two], "RR")
    assert comparison.measure == "mrr"
    (pair,) = comparison.pairs
    tested = stats.ttest_rel(*(values_of(each)[:, 1] for each in (one, two)))
    assert (pair.ci_low, pair.ci_high) == pytest.approx(tuple(tested.confidence_interval()))
    assert pair.p_holm == pair.p_ttest
    assert (pair.simultaneous_low, pair.simultaneous_high) == (None, None)
    saved = two.only_collection()
    turned = single(replace(saved, query_ids=saved.query_ids[::-1], values=saved.values[::-1]))
    assert compare([one, turned], "RR").json() == comparison.json()


@over_strata
def test_letters_ranks_and_stars_agree(sizes: dict[str, int]) -> None:
    suites, _ = trio(sizes)
    made = compare(suites)
    assert [pair.shown for pair in made.pairs] == [True, True, False]
    assert [entry.letters for entry in made.results] == ["b", "a", "b"]
    assert [(e.rank_low, e.rank_high) for e in made.results] == [(2, 3), (1, 1), (2, 3)]
    shown = [[each.shown for each in pair.collections] for pair in made.pairs]
    best, pairs, *each = made.tables()
    assert "*" in pairs.rows[0][5]
    if sizes is THREE:
        assert shown == [[True, True, False], [True, True, False], [False] * 3]
        assert best.rows[0][4].startswith("1 (1 to 1)")
        assert each[0].rows[0][1].endswith("*")
        assert not each[0].rows[0][3].endswith("*")
    (same,) = compare([make("one", 1, sizes=sizes), make("same", 1, sizes=sizes)]).pairs
    assert (same.difference, same.p_ttest, same.p_randomization, same.p_holm) == (0, 1, 1, 1)
    assert (same.wins, same.ties, same.losses) == (0, 3 if sizes is THREE else 40, 0)
    assert (same.ci_low, same.ci_high, same.fragile) == (0, 0, True)  # differences without spread


def test_no_interval_for_all_pairs_contradicts_its_star() -> None:
    shifts = [0, 0.01, 0.02, 0.05, 0.09, 0.1, 0.11, 0.12, 0.16]
    noise = [np.random.default_rng(seed).beta(0.5, 0.7, (400, 2)) / 2 for seed in range(1, 10)]
    results = [single(result(f"+{shift}", shift + each)) for shift, each in zip(shifts, noise, strict=True)]
    comparison = compare(results)
    assert {pair.shown for pair in comparison.pairs} == {True, False}
    for pair in comparison.pairs:
        low, high = pair.simultaneous_low, pair.simultaneous_high
        assert low <= pair.difference <= high
        assert (low >= 0 or high <= 0) == pair.shown
        assert low <= pair.ci_low or low == 0
    letters = {entry.name: set(entry.letters or "") for entry in comparison.results}
    assert all(bool(letters[pair.a] & letters[pair.b]) != pair.shown for pair in comparison.pairs)
    (pairs,) = (table for table in comparison.tables() if table.title.startswith("differences"))
    starred = [any(cell.endswith(" *") for cell in row) for row in pairs.rows]
    assert starred == [pair.shown for pair in comparison.pairs]


def test_a_baseline_is_all_that_is_tested_against(finished: Path) -> None:
    results = [make("x", 0), make("y", 1), make("z", 2, (0.03,))]
    all_pairs, against = compare(results), compare(results, baseline="y")
    assert [(pair.a, pair.b) for pair in against.pairs] == [("x", "y"), ("z", "y")]
    (same,) = (pair for pair in all_pairs.pairs if {pair.a, pair.b} == {"y", "z"})
    assert abs(against.pairs[1].difference) == same.difference  # the better one comes first
    assert against.pairs[1].p_ttest == pytest.approx(same.p_ttest)
    assert against.pairs[1].p_holm < same.p_holm  # two tests instead of three
    assert (against.json()["baseline"], all_pairs.json()["baseline"]) == ("y", None)
    assert [column.name for column in against.tables()[0].columns].count("group") == 0
    folder = finished / "results" / "t"
    for baseline in (folder, "t", str(folder / ".." / "t")):
        assert compare([folder], baseline=baseline).pairs == []
    assert compare([folder, folder], baseline=folder).pairs[0].b == "t"


@pytest.mark.parametrize(
    ("stage", "left"), [("passages", (None, 200)), ("index", (None, 200)), ("search", (100, None))]
)
def test_a_speed_of_which_a_part_was_not_timed_is_unknown(
    stage: str, left: tuple[float | None, float | None]
) -> None:
    saved = make("resumed, with nothing left to do", 1)
    rows = [row.model_dump() for row in saved.only_collection().record.stages]
    rows = [
        row | {"items_per_second": None, "seconds": 0.1} if row["stage"] == stage else row for row in rows
    ]
    (entry,) = compare([changed(saved, stages=rows)]).results
    assert (entry.passages_per_second, entry.queries_per_second) == pytest.approx(left)


def test_few_queries_and_rounding_show_no_difference() -> None:
    one = make("one", 1, sizes=ONE)
    few = with_values(one, values_of(one)[:2])
    comparison = compare([few, with_values(few, values_of(few) - 0.25, "two")])
    (pair,) = comparison.pairs
    assert pair.p_holm < 0.05 < pair.p_randomization == 0.5  # 2 of 4 ways
    assert not pair.shown
    assert [entry.letters for entry in comparison.results] == ["a", "a"]
    written = json.loads(json.dumps(comparison.json(), allow_nan=False))
    assert written["results"][0]["ci_low"] is written["pairs"][0]["ci_high"] is None
    for scale in (1, 1e6):
        base = with_values(one, scale * (1 + values_of(one)))
        (pair,) = compare([base, with_values(one, np.nextafter(values_of(base), np.inf), "two")]).pairs
        assert (pair.ties, pair.p_ttest) == (40, 1)


def test_queries_that_collections_share_count_once() -> None:
    """A suite of one collection and its copies says of its mean what the collection alone does."""
    alone = [make("one", 1), make("two", 2)]
    suites = [suite(each.name, dict.fromkeys(THREE, each.only_collection())) for each in alone]
    ours, theirs = compare(suites), compare(alone)
    assert ours.notes == ["40 query ids are in several collections: each counts as one query"]
    for name in ("p_ttest", "p_randomization", "ci_low", "ci_high", "detects"):
        assert getattr(ours.pairs[0], name) == pytest.approx(getattr(theirs.pairs[0], name))
    assert [(each.ci_low, each.ci_high) for each in ours.results] == [
        pytest.approx((each.ci_low, each.ci_high)) for each in theirs.results
    ]
    for guarantee in (False, True):
        (one,) = gate_result(*suites, margin=0.05, guarantee=guarantee).measures
        (other,) = gate_result(*alone, margin=0.05, guarantee=guarantee).measures
        assert one.p_not_worse == pytest.approx(other.p_not_worse)
        assert (one.ci_low, one.ci_high) == pytest.approx((other.ci_low, other.ci_high))


def test_names_are_told_apart_by_paths_and_are_text() -> None:
    def names(*paths: str | bytes) -> list[str]:
        saved = make("t", 1).only_collection()
        given = [single(replace(saved, folder=Path(os.fsdecode(path)))) for path in paths]
        return [entry.name for entry in compare([*given, make("u", 2)]).results]

    assert names("/a/x/t", "/b/x/t", "/b/y/t") == ["a/x/t", "b/x/t", "b/y/t", "u"]
    assert names(b"/a\xff", b"/a\xfe", b"/b") == ["a\ufffd", "a\ufffd#2", "b", "u"]


def test_the_measure_is_the_first_that_all_have() -> None:
    values = np.random.default_rng(1).random((40, 3))
    one = single(result("one", values, ("map", "mrr", "ndcg@10")))
    comparison = compare([one, single(result("two", values[:, :2], ("ndcg@10", "mrr")))])
    assert (comparison.measure, comparison.measures) == ("mrr", ["mrr", "ndcg@10"])


def other_ids(given: Result) -> Result:
    first, *others = given.collections
    return replace(
        given, collections=[replace(first, query_ids=[f"other{q}" for q in first.query_ids]), *others]
    )


def other_judgments(given: Result) -> Result:
    manifest = given.only_collection().manifest.model_copy(update={"contents": {"qrels": "two"}})
    return single(replace(given.only_collection(), manifest=manifest))


TWO, WHOLE = make("two", 2), make("one", 1, sizes=THREE)
of_three = partial(make, "two", 2, sizes=THREE)
REFUSED = {
    "map is not among the measures of one, two. Allowed: ndcg@10, mrr": ([TWO], "map"),
    "no measure is in all of one, three": (
        [single(result("three", np.ones((40, 1)), ["recall@5"]))], None
    ),
    "different queries: 40 and 40, 'otherq0' only in two": ([other_ids(TWO)], None),
    "one and two were scored by different judgments": ([other_judgments(TWO)], None),
    "one is of a suite, and two is not": ([WHOLE, TWO], None),
    "two has no macro mean: second failed": ([WHOLE, of_three(failed={"second": "no folder"})], None),
    "of different collections: 'second' is only in one": (
        [WHOLE, make("two", 2, sizes={"first": 40, "third": 60})], None
    ),
    "their groups differ": ([WHOLE, of_three(groups={"first": "g", "third": "g"})], None),
    "recall@5 is not on every collection of one": ([WHOLE], "recall@5"),
    "one/first and two/first were scored on different queries": (
        [WHOLE, other_ids(of_three())], None
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_compared_is_refused(message: str) -> None:
    others, measure = REFUSED[message]
    given = others if others[0] is WHOLE else [make("one", 1), *others]
    with pytest.raises(InputError, match=re.escape(message)):
        compare(given, measure)


def ran_on(given: Result, hardware: dict[str, Any], threads: int | None, last: str = "y") -> Result:
    """The result with stages computed on some hardware, and written by a run on a processor named `last`."""
    saved = given.only_collection()
    made = {"hardware": Hardware(cpu="x", **hardware), "threads": threads}
    stages = tuple(row.model_copy(update=made) for row in saved.record.stages)
    manifest = saved.manifest.model_copy(update={"hardware": Hardware(cpu=last)})
    record = saved.record.model_copy(update={"stages": stages})
    return single(replace(saved, record=record, manifest=manifest))


@pytest.mark.parametrize(
    ("ours", "theirs", "threads", "told"),
    [
        ({"gpus": ("NVIDIA H200",)}, {"gpus": ("NVIDIA T4",)}, 2, True),
        ({"gpus": ()}, {}, 2, False),
        ({"system": "Linux-6.1", "memory_gb": 8}, {"system": "Linux-6.2", "memory_gb": 9}, 2, False),
        ({"cores": 1}, {"cores": 2}, 2, True),
        ({}, {}, 1, True),
    ],
)
def test_other_processors_are_told_by_the_machine_of_each_stage(
    ours: dict[str, Any], theirs: dict[str, Any], threads: int, told: bool
) -> None:
    one, two = ran_on(make("one", 1), ours, 2), ran_on(make("two", 2), theirs, threads, last="z")
    notes = [note for note in compare([one, two]).notes if "different hardware" in note]
    assert len(notes) == told
    assert not notes or "computed passages, search on" in notes[0]


def test_notes_say_what_else_differs() -> None:
    one, two = make("one", 1), make("two", 2)
    assert compare([one, two]).notes == []
    (note,) = compare([one, changed(two, passages=10)]).notes
    assert "different passages, 9 and 10" in note
    # the lower result has fewer judged passages, by more than it is lower
    apart = values_of(one)[:, 0].mean() - values_of(two)[:, 0].mean()

    def notes(first: float, second: float, measure: str = "ndcg@10") -> list[str]:
        shares = zip((one, two), (first, second), strict=True)
        return compare(
            [changed(each, unjudged={"ndcg@10": {"judged": share}}) for each, share in shares], measure
        ).notes

    assert notes(0.9, 0.9 - apart * 1.1) == [
        "unjudged passages, which count as not relevant, may be why "
        f"two ({0.9 - apart * 1.1:.1%} judged) is below one (90.0%)"
    ]
    assert notes(0.9, 0.9 - apart * 0.9) == notes(0.1, 0.9) == notes(0.9, 0.1, "mrr") == []
    # on several collections, what holds on all of them is said once
    suites = make("one", 1, sizes=THREE), make("other", 2, sizes=THREE)
    for saved, threads in ((suites[0], 2), (suites[1], 4)):
        for number, each in enumerate(saved.collections):
            stages = ("search", "index")[: 1 + number]
            rows = [{"stage": stage, "seconds": 2.0, "threads": threads} for stage in stages]
            saved.collections[number] = changed(each, stages=rows).only_collection()
    (note,) = compare(suites).notes
    assert note.startswith("one and other computed search, index on different hardware")


def test_one_sentence_says_what_is_shown() -> None:
    draw = np.random.default_rng(4).uniform
    low, high = (single(result(name, draw(end, 1, (43, 2)))) for name, end in (("low", -0.2), ("high", 0.5)))
    like = with_values(high, values_of(high)[::-1], "like")
    pair = compare([low, high])
    (shown,) = pair.pairs
    assert pair.verdict == (
        f"high is better than low in ndcg@10 by {shown.difference:.4f} "
        f"[{shown.ci_low:.4f}, {shown.ci_high:.4f}] (p < 0.0001)"
    )
    assert len(pair.short_tables()) == 1
    undecided = compare([high, like], detect=0.01)
    (same,) = undecided.pairs
    error = same.spread / 43**0.5
    assert stats.nct.sf(stats.t.ppf(0.975, 42), 42, same.detects / error) == pytest.approx(0.8, abs=1e-6)
    assert same.queries_to_detect == pytest.approx(43 * (same.detects / 0.01) ** 2, rel=0.05)
    assert undecided.verdict.startswith("No significant difference between ")
    assert undecided.verdict.endswith(
        f"; 43 queries detect a difference of {same.detects:.2g} (80% power); "
        f"a difference of 0.01 takes about {same.queries_to_detect:,} queries (80% power, two-sided)"
    )
    alike = compare([high, with_values(high, values_of(high), "alike")], detect=0.01)
    assert "how many queries a difference of 0.01 takes is not known" in alike.verdict
    both = compare([low, high, like])
    assert re.match(r"(high|like) has the highest ndcg@10, 0\.\d{4} \[.*\]; ", both.verdict)
    assert "no significant difference from " in both.verdict
    assert len(both.short_tables()) == 2
    copies = (with_values(like, values_of(like), name) for name in ("other", "another"))
    *_, of_best = compare([low, high, like, *copies]).short_tables()
    assert re.match(r"Only pairs with \w+ are shown\. group: ", of_best.notes[0])
    against = compare([low, high, like], baseline="low").verdict
    assert against.startswith("Against low in ndcg@10; better: high")
    alone = compare([low]).verdict
    assert re.fullmatch(r"ndcg@10 of low is 0\.\d{4} \[0\.\d{4}, 0\.\d{4}\] over \d+ queries", alone)


def test_a_star_is_marked_where_one_lost_query_more_would_outweigh_the_interval() -> None:
    """Most queries gain 0.018; where none of the few that lose 0.9 is drawn, nothing tells of them."""
    values = np.random.default_rng(4).uniform(0.2, 0.8, (43, 2))
    little = np.random.default_rng(5).normal(0.018, 0.01, (43, 2))
    gains, even = (single(result(name, values + more)) for name, more in (("gains", little), ("even", 0)))
    comparison = compare([even, gains])
    (pair,) = comparison.pairs
    assert (pair.shown, pair.fragile) == (True, True)
    low, high = pair.ci_low, pair.ci_high
    assert 0 < low < high < low + 2 / 43
    assert comparison.verdict == (
        f"gains is better than even in ndcg@10 by {pair.difference:.4f} [{low:.4f}, {high:.4f}]~ (p < 0.0001)"
    )
    assert "*~" in str(comparison)
    assert "~: one unseen query that loses everything would move the mean" in str(comparison)
    apart = single(result("apart", 1 - values))
    assert not compare([even, apart]).pairs[0].fragile


KEYS = {"a", "b", "difference", "p_ttest", "p_randomization", "p_holm", "wins", "ties", "losses"}


def test_the_command_prints_a_result_with_itself_in_each_form(finished: Path, tmp_path: Path) -> None:
    folder = finished / "results" / "t"
    metrics = read_json(folder / "metrics.json")
    found = document("compare", folder, folder, "--measure", "RR@10")
    assert found["measure"] == "mrr@10"
    for entry, name in zip(found["results"], ("t", "t#2"), strict=True):
        assert (entry["name"], entry["mean"], entry["queries"]) == (name, metrics["metrics"]["mrr@10"], 114)
        assert [entry["ci_low"], entry["ci_high"]] == pytest.approx(metrics["intervals"]["mrr@10"])
        assert entry["index_bytes"] == metrics["passages"] * entry["bytes_per_passage"]
        assert entry["index_bytes"] == pytest.approx(metrics["stages"][3]["bytes"], rel=0.01)
    assert set(found["pairs"][0]) >= KEYS
    printed = {
        form: benchmarco("compare", folder, folder, "--format", form).stdout
        for form in ("table", "csv", "markdown", "latex")
    }
    assert printed["table"].startswith("No significant difference between ")
    assert "0/114/0" not in printed["table"]
    assert printed["csv"].startswith(
        "measure,name,against,value,ci_low,ci_high,queries,letters,fragile,passages_"
    )
    assert printed["markdown"].startswith("ndcg@10 over 114 queries\n\n| result | mean |")
    assert printed["latex"].count(r"\end{tabular}") == 3  # results, pairs, what changes
    # Rich has markup and emoji of its own: `[bold]` and `:x:`
    named = [Path(shutil.copytree(folder, tmp_path / name / "t")) for name in ("[bold]", ":x:")]
    printed["table"] = benchmarco("compare", *named, "-v").stdout
    assert "[bold]/t - :x:/t" in printed["table"]
    assert "0/114/0" in printed["table"]


@pytest.fixture(scope="module")
def suites(three_collections: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two finished suites, `bm25` and `plain`, and of the single result `alone`."""
    folder = tmp_path_factory.mktemp("suites")
    listed = {name: {"source": "beir", "path": str(three_collections / name)} for name in ("small", "large")}
    one, two = ({"name": name, "model.b": b} for name, b in (("bm25", 0.4), ("plain", 0.0)))
    alone = {"name": "alone", "data": None, "data.source": "sample"}
    swept = config(folder, "any", data={"collections": listed}, sweep=[one, two, alone], search={})
    (folder / "c.yaml").write_text(json.dumps(swept), encoding="utf-8")
    outcomes = list(run_benchmarks(load_configs(folder / "c.yaml")))
    assert [outcome.error for outcome in outcomes] == [None] * 3
    return folder / "results"


def test_a_suite_is_compared_wherever_a_result_is(suites: Path, tmp_path: Path) -> None:
    made = compare([suites / "bm25", suites / "plain"])
    page = tmp_path / "page.html"
    both = "compare", suites / "bm25", suites / "plain"
    found = document(*both, "--html", page)
    assert found == json.loads(json.dumps(made.json()))
    assert found["collections"] == ["small", "large"]
    assert set(found["pairs"][0]) >= KEYS
    text = page.read_text(encoding="utf-8")
    for shown in ("macro mean", "small", "large", "bm25 - plain", "What was run"):
        assert shown in text
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)
    for form, start in (("csv", "measure,name"), ("markdown", "ndcg@10 over 2"), ("latex", "% group:")):
        assert benchmarco(*both, "--format", form).stdout.startswith(start)
    assert "| result | macro mean |" in markdown(made.tables())
    assert r"\toprule" in latex(made.tables())
    benchmarco("report", suites / "bm25", "--html", page)
    assert "Collection by collection" in page.read_text(encoding="utf-8")
    assert compare([suites / "bm25" / "small", suites / "plain" / "small"]).measure == "ndcg@10"
    table = made.figures()  # a row for each mean and difference
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    assert [(row["name"], row["against"], row["collection"]) for row in rows] == [
        (*pair, place)
        for pair in (("bm25", ""), ("plain", ""), ("bm25", "plain"))
        for place in ("", "small", "large")
    ]
    assert float(rows[0]["value"]) == pytest.approx((float(rows[1]["value"]) + float(rows[2]["value"])) / 2)


def test_options_that_do_not_go_together_are_refused(suites: Path, caplog: pytest.LogCaptureFixture) -> None:
    bm25, alone = suites / "bm25", suites / "alone"
    assert document("gate", bm25, "--baseline", bm25)["verdict"] == "pass"
    assert "bm25#2 is bm25 again: one result is given twice" in caplog.text
    for arguments, message in (
        (("gate", bm25, "--baseline", alone), "bm25 is of a suite, and alone is not"),
        (("compare", bm25, "--groups"), "bm25 is of a suite"),
        (("compare", bm25, "--json", "--format", "csv"), "--json and --format csv"),
        (("compare", bm25, "--html", "none/page.html"), "no folder none"),
        (("pool", bm25), "bm25 is of a suite"),
    ):
        done = benchmarco(*arguments, code=2)
        assert (done.stdout, message in on_one_line(done)) == ("", True), done.output


QRELS = Path("data", "qrels", "test.tsv")


@pytest.fixture
def runs(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a result, `a.trec`, which is its run, and `b.trec`, with half of the lines of it."""
    monkeypatch.chdir(workplace)
    lines = Path("results/t/run.trec").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("a.trec").write_text("".join(lines), encoding="utf-8")
    Path("b.trec").write_text("".join(lines[::2]), encoding="utf-8")


@pytest.mark.usefixtures("runs")
def test_a_run_file_is_the_equal_of_the_result_it_is_of() -> None:
    compared = compare(["results/t", "a.trec"], "ndcg@10", qrels=QRELS)
    (pair,) = compared.pairs
    assert [entry.name for entry in compared.results] == ["t", "a.trec"]
    assert pair.difference == pytest.approx(0, abs=1e-12)
    assert pair.ties == len(compared.query_ids)
    assert compared.notes == []
    among_runs = compare(["a.trec", "b.trec"], "ndcg@10", qrels=QRELS)
    beside = compare(["results/t", "b.trec"], "ndcg@10", qrels=QRELS)
    assert among_runs.pairs[0].difference == pytest.approx(beside.pairs[0].difference)
    assert among_runs.pairs[0].ties < len(compared.query_ids)


@pytest.mark.usefixtures("runs")
def test_several_measures_have_a_table_each_and_a_warning() -> None:
    arguments = ["compare", "a.trec", "b.trec", "--qrels", str(QRELS)]
    measures = ["--measure", "ndcg@10", "--measure", "P@3"]
    text = on_one_line(benchmarco(*arguments, *measures, "-v"))
    assert "differences in ndcg@10" in text
    assert "differences in P@3" in text
    assert "2 measures: p is corrected for the pairs of one measure" in text
    printed: Any = document(*arguments, *measures)
    assert [each["measure"] for each in printed] == ["ndcg@10", "precision@3"]
    table = benchmarco(*arguments, *measures, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["measure"] for row in rows] == ["ndcg@10"] * 3 + ["precision@3"] * 3


@pytest.mark.usefixtures("runs")
def test_runs_without_their_judgments_are_refused() -> None:
    with pytest.raises(InputError, match=r"a\.trec is a run file, and --qrels is not given"):
        compare(["results/t", "a.trec"])
    with pytest.raises(InputError, match="without a run file"):
        compare(["results/t"], qrels=QRELS)
    shutil.copy(QRELS, "other.tsv")
    with open("other.tsv", "a", encoding="utf-8") as file:
        file.write("unknown\tunknown\t1\n")
    with pytest.raises(InputError, match=r"was not scored by other\.tsv"):
        compare(["results/t", "a.trec"], qrels="other.tsv")
    done = benchmarco("compare", "a.trec", "b.trec", "--qrels", QRELS, "--html", "page.html", code=2)
    assert "--html with the run file a.trec" in on_one_line(done)
    assert not Path("page.html").exists()


def test_suites_of_eight_collections_have_an_interval_of_all_such_collections_too() -> None:
    sizes = {f"c{number}": 30 for number in range(8)}
    suites = [make(name, seed, (better,) * 8, sizes) for name, seed, better in (("a", 1, 0), ("b", 2, 0.1))]
    comparison = compare(suites)
    for entry in comparison.results:
        means = list(entry.by_collection.values())
        expected = stats.ttest_1samp(means, 0).confidence_interval(0.95)
        assert (entry.over_collections_low, entry.over_collections_high) == pytest.approx(tuple(expected))
    (pair,) = comparison.pairs
    assert 0 < pair.over_collections_low < pair.difference < pair.over_collections_high
    assert "8 collections, 240 queries; 95% intervals of these and of all such collections" in str(comparison)
    text = str(comparison)
    assert text.count("macro means; 95% intervals of these and of all such collections") == 1
    ranks = {entry.name: (entry.rank_over_low, entry.rank_over_high) for entry in comparison.results}
    assert ranks == {"a": (2, 2), "b": (1, 1)}
    assert "rank, all such collections" in text
    fewer = compare([make(name, 1, sizes=THREE) for name in "ab"])
    assert "95% intervals of these collections" in str(fewer)
    assert fewer.pairs[0].over_collections_low is None
    assert "all such collections" not in str(fewer)
