"""Comparisons of suites: what they say, by plain NumPy and SciPy, and which they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from pipeline import compare, load_configs, run_benchmarks
from pipeline.cli import app
from pipeline.comparison.gate import gate as gate_suites
from pipeline.core.errors import InputError
from pipeline.metrics.paired import holm
from pipeline.metrics.resampling import noninferiority
from pipeline.report.renderings import latex, markdown
from pipeline.results.folder import SavedResult
from pipeline.results.records import Manifest, Metrics
from pipeline.results.suite_folder import SavedSuite, SuiteRecord

SIZES = {"first": 40, "second": 30, "third": 60}


def result(name: str, values: np.ndarray[Any, Any]) -> SavedResult:
    ids = [f"{name}-q{number}" for number in range(len(values))]
    record = Metrics.model_validate(
        {
            "name": name,
            "queries": len(values),
            "passages": 9,
            "metrics": {"ndcg@10": float(values.mean())},
            "stages": [{"stage": "search", "seconds": 2.0}],
        }
    )
    manifest = Manifest.model_validate({"recipes": {"evaluate": {"qrels": {"qrels": name}}}})
    return SavedResult(Path("r", name), record, manifest, ids, ["ndcg@10"], values[:, None])


@pytest.fixture
def make() -> Callable[..., SavedSuite]:
    """Makes suites; `better` is added to the values of each collection."""

    def suite(name: str, seed: int, better: tuple[float, ...] = (0, 0, 0), **changes: Any) -> SavedSuite:
        hard = np.random.default_rng(0)
        own = np.random.default_rng(seed)
        results = {}
        for (collection, size), more in zip(SIZES.items(), better, strict=True):
            shared = hard.normal(0.5, 0.2, size)
            results[collection] = result(collection, np.clip(shared + own.normal(more, 0.1, size), 0, 1))
        means = [each.record.metrics["ndcg@10"] for each in results.values()]
        record = {
            "name": name,
            "collections": tuple(SIZES),
            "keys": {},
            "queries": sum(SIZES.values()),
            "passages": 27,
            "metrics": {"ndcg@10": float(np.mean(means))},
            **changes,
        }
        return SavedSuite(Path("results", name), SuiteRecord.model_validate(record), results)

    return suite


def test_what_it_says_of_three(make: Callable[..., SavedSuite]) -> None:
    suites = [make("one", 1), make("two", 2, (0.1, 0.1, 0)), make("three", 3, (0, 0.01, 0))]
    made = compare(suites)
    columns = [[s.results[c].values[:, 0] for s in suites] for c in SIZES]
    by_collection = np.array([[values.mean() for values in row] for row in columns])
    for number, entry in enumerate(made.results):
        assert entry.mean == pytest.approx(by_collection[:, number].mean(), abs=1e-12)
        assert list(entry.by_collection.values()) == pytest.approx(by_collection[:, number])
        assert entry.best == (by_collection.argmax(axis=1) == number).sum()
        assert (entry.queries, entry.seconds) == (130, 6.0)
        assert entry.ci_low is not None
        assert entry.ci_high is not None
        spread = sum(row[number].var(ddof=1) / len(row[number]) for row in columns) ** 0.5 / 3
        assert entry.ci_high - entry.ci_low == pytest.approx(2 * 1.98 * spread, rel=0.05)
    assert [pair.a + "-" + pair.b for pair in made.pairs] == ["one-two", "one-three", "two-three"]
    generator = np.random.default_rng(99)
    for pair, (a, b) in zip(made.pairs, [(0, 1), (0, 2), (1, 2)], strict=True):
        differences = [row[a] - row[b] for row in columns]
        mean = float(np.mean([each.mean() for each in differences]))
        assert pair.difference == pytest.approx(mean, abs=1e-12)
        variances = np.array([each.var(ddof=1) / len(each) / 9 for each in differences])
        freedom = variances.sum() ** 2 / sum(
            v**2 / (len(d) - 1) for v, d in zip(variances, differences, strict=True)
        )
        t = abs(mean) / variances.sum() ** 0.5
        assert pair.p_ttest == pytest.approx(2 * stats.t.sf(t, freedom), abs=1e-12)
        flat = np.concatenate([each / len(each) / 3 for each in differences])
        signs = generator.choice([-1.0, 1.0], (20_000, len(flat)))
        p = (1 + (np.abs(signs @ flat) >= abs(flat.sum())).sum()) / 20_001
        assert pair.p_randomization == pytest.approx(p, abs=0.012)
        deviation = (variances.sum() * 130) ** 0.5  # of one collection with this error and all queries
        assert pair.effect_size == pytest.approx(mean / deviation)
        assert pair.detectable == pytest.approx(2.83 * deviation / 130**0.5, rel=0.01)
        assert (pair.p_equivalent, pair.equivalent) == (None, None)
        for each, values in zip(pair.collections, differences, strict=True):
            assert each.difference == pytest.approx(values.mean(), abs=1e-12)
            assert each.p_ttest == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=1e-9)
        signs_of = [np.sign(each.mean()) for each in differences]
        assert (pair.wins, pair.losses) == (signs_of.count(1), signs_of.count(-1))
    each = [each for pair in made.pairs for each in pair.collections]
    # the t-test's where no randomization reaches the difference: only the observed one, of 20,001
    both = [(one.p_ttest, one.p_randomization) for one in each]
    larger = np.array([max(t, chance) if chance > 1.5 / 20_001 else t for t, chance in both])
    assert [one.p_holm for one in each] == pytest.approx(holm(larger).tolist())  # one family
    assert [pair.p_holm for pair in made.pairs] == pytest.approx(
        holm(np.array([pair.p_ttest for pair in made.pairs])).tolist()
    )


def test_queries_that_collections_share_count_once(make: Callable[..., SavedSuite]) -> None:
    """A suite of one collection and its copies says of its mean what the collection alone does."""

    def copied(name: str, seed: int) -> SavedSuite:
        suite = make(name, seed)
        return replace(suite, results=dict.fromkeys(SIZES, suite.results["first"]))

    suites = [copied("one", 1), copied("two", 2)]
    alone = [SavedSuite.of_one(replace(suite.results["first"])) for suite in suites]
    ours, theirs = compare(suites, margin=0.05), compare(alone, margin=0.05)
    assert ours.notes == ["40 query ids are in several collections: each counts as one query"]
    names = ("p_ttest", "p_randomization", "p_equivalent", "ci_low", "ci_high", "effect_size")
    for name in names:
        assert getattr(ours.pairs[0], name) == pytest.approx(getattr(theirs.pairs[0], name))
    assert [(each.ci_low, each.ci_high) for each in ours.results] == [
        pytest.approx((each.ci_low, each.ci_high)) for each in theirs.results
    ]
    for guarantee in (False, True):
        (one,) = gate_suites(suites[0], suites[1], margin=0.05, guarantee=guarantee).measures
        (other,) = gate_suites(alone[0], alone[1], margin=0.05, guarantee=guarantee).measures
        assert one.p_not_worse == pytest.approx(other.p_not_worse)
        assert (one.ci_low, one.ci_high) == pytest.approx((other.ci_low, other.ci_high))


def test_letters_ranks_and_stars_agree(make: Callable[..., SavedSuite]) -> None:
    suites = [make("one", 1), make("two", 2, (0.1, 0.1, 0)), make("three", 3)]
    made = compare(suites)
    assert [pair.shown for pair in made.pairs] == [True, False, True]
    assert [entry.letters for entry in made.results] == ["b", "a", "b"]
    assert [(e.rank_low, e.rank_high) for e in made.results] == [(2, 3), (1, 1), (2, 3)]
    for pair in made.pairs:
        assert pair.simultaneous_low is not None
        assert pair.simultaneous_high is not None
        assert pair.shown == (pair.simultaneous_low >= 0 or pair.simultaneous_high <= 0)
    shown = [[each.shown for each in pair.collections] for pair in made.pairs]
    assert shown == [[True, True, False], [False] * 3, [True, True, False]]
    best, pairs, each = made.tables()
    assert best.rows[1][4].startswith("1 (1 to 1)")
    assert "*" in pairs.rows[0][6]
    assert each.rows[0][1].endswith("*")
    assert not each.rows[0][3].endswith("*")
    (same,) = compare([make("one", 1), make("same", 1)]).pairs
    assert (same.difference, same.p_ttest, same.p_randomization, same.ties) == (0, 1, 1, 3)
    assert (same.ci_low, same.simultaneous_low) == (None, None)


def test_speeds_that_do_not_compare_are_said_once(make: Callable[..., SavedSuite]) -> None:
    one, other = make("one", 1), make("other", 2)
    for number, collection in enumerate(SIZES):
        for name in ("search", "index")[: 1 + number]:
            for suite, threads in ((one, 2), (other, 4)):
                saved = suite.results[collection]
                row = {"stage": name, "seconds": 2.0, "threads": threads}
                kept = [each.model_dump() for each in saved.record.stages if each.stage != name]
                record = saved.record.model_dump() | {"stages": [*kept, row]}
                suite.results[collection] = replace(saved, record=Metrics.model_validate(record))
    (note,) = compare([one, other]).notes
    assert note.startswith("one and other computed search, index on different hardware")


def test_macro_means_within_a_margin(make: Callable[..., SavedSuite]) -> None:
    suites = [make("one", 1), make("near", 2), make("far", 3, (0.1, 0.1, 0))]
    near, far, _ = compare(suites, margin=0.04).pairs
    assert (near.equivalent, far.equivalent) == (True, False)
    differences = [suites[0].results[c].values - suites[1].results[c].values for c in SIZES]
    weights = np.full(3, 1 / 3)
    sides = [
        noninferiority([sign * each for each in differences], np.array([0.04]), weights)[0]
        for sign in (1, -1)
    ]
    assert near.p_equivalent == pytest.approx(3 * max(sides).item())  # Holm's, of three pairs
    assert compare(suites, margin=0.04).tables()[1].rows[0][7].endswith("=")
    few = [replace(suite, record=None, results={"": suite.results["second"]}) for suite in suites[:2]]
    for suite in few:
        saved = suite.results[""]
        suite.results[""] = replace(saved, query_ids=saved.query_ids[:20], values=saved.values[:20])
    assert compare(few, margin=0.4).pairs[0].equivalent is False  # of 20 queries
    with pytest.raises(InputError, match="--margin 0"):
        compare(suites, margin=0)


def test_what_cannot_be_compared_is_refused(make: Callable[..., SavedSuite]) -> None:
    whole, failed = make("one", 1), make("two", 2, failed={"second": "no such folder"})
    with pytest.raises(InputError, match="two has no macro mean: second failed"):
        compare([whole, failed])
    with pytest.raises(InputError, match="of different collections: 'second' is only in one"):
        compare([whole, make("two", 2, collections=("first", "third"))])
    with pytest.raises(InputError, match="their groups differ"):
        compare([whole, make("two", 2, groups={"first": "g", "third": "g"})])
    with pytest.raises(InputError, match="recall@5 is not on every collection of one"):
        compare([whole], "recall@5")
    other = make("two", 2)
    results = {
        **other.results,
        "first": replace(other.results["first"], query_ids=[str(i) for i in range(40)]),
    }
    with pytest.raises(InputError, match="one/first and two/first were scored on different queries"):
        compare([whole, replace(other, results=results)])


def test_a_gate_of_macro_means(make: Callable[..., SavedSuite]) -> None:
    baseline, same, near = make("old", 1), make("new", 1), make("near", 2)
    worse, better = make("worse", 3, (-0.1, -0.1, 0)), make("better", 4, (0.1, 0.1, 0))
    verdicts = {
        name: gate_suites(each, baseline, margin=margin).measures[0]
        for name, each, margin in (
            ("same", same, 0.04),  # of 30 queries of a third of the weight none may lose 0.04 · 90: 3 / 90
            ("few", same, 0.03),
            ("worse", worse, 0.01),
            ("better", better, 0.01),
            ("near", near, 0.03),
            ("undecided", near, 0.001),
        )
    }
    assert {name: each.verdict for name, each in verdicts.items()} == {
        "same": "pass", "few": "undecided", "worse": "fail", "better": "pass", "near": "pass",
        "undecided": "undecided",
    }  # fmt: skip
    differences = [near.results[c].values[:, 0] - baseline.results[c].values[:, 0] for c in SIZES]
    variances = np.array([each.var(ddof=1) / len(each) / 9 for each in differences])
    freedom = variances.sum() ** 2 / sum(
        v**2 / (len(d) - 1) for v, d in zip(variances, differences, strict=True)
    )
    mean = float(np.mean([each.mean() for each in differences]))
    unseen = (
        1 / 90
    )  # what one of 30 queries of a third of the weight takes, of which a quarter is lost unseen
    error = (variances.sum() + unseen**2 / 4) ** 0.5
    p = float(stats.t.sf((mean + 0.001 - unseen / 4) / error, freedom))
    found = verdicts["undecided"]
    assert found.difference == pytest.approx(mean, abs=1e-12)
    assert p - 1e-12 <= found.p_not_worse <= p + 0.02  # the larger of the t-test's and the bootstrap's
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert found.ci_low < mean < found.ci_high
    assert found.queries == 130
    assert found.queries_needed is not None
    assert found.queries_needed > 130
    with pytest.raises(InputError, match="recall@5 is not on every collection of old"):
        gate_suites(near, baseline, ["recall@5"])


@pytest.fixture(scope="module")
def suites(three_collections: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two finished suites, `bm25` and `plain`, and of the single result `alone`."""
    folder = tmp_path_factory.mktemp("suites")
    listed = {name: {"source": "beir", "path": str(three_collections / name)} for name in ("small", "large")}
    one, two = ({"name": name, "model.b": b} for name, b in (("bm25", 0.4), ("plain", 0.0)))
    alone = {"name": "alone", "data": None, "data.source": "sample"}
    config = {
        "name": "any",
        "data": {"collections": listed},
        "model": {"backend": "bm25"},
        "evaluate": {"measures": ["ndcg@10", "mrr@10"]},
        "cache": str(folder / "i"),
        "output": str(folder),
        "sweep": [one, two, alone],
    }
    (folder / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    outcomes = list(run_benchmarks(load_configs(folder / "c.yaml")))
    assert [outcome.error for outcome in outcomes] == [None] * 3
    return folder


def test_a_suite_is_compared_wherever_a_result_is(suites: Path, tmp_path: Path) -> None:
    made = compare([suites / "bm25", suites / "plain"])
    assert made.of_suites
    page = tmp_path / "page.html"
    arguments = ["compare", str(suites / "bm25"), str(suites / "plain"), "--html", str(page), "--json"]
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 0, said.stderr
    document = json.loads(said.stdout)
    assert document == json.loads(json.dumps(made.json()))
    assert document["collections"] == ["small", "large"]
    assert {"a", "b", "difference", "p_ttest", "p_randomization", "p_holm", "wins", "ties", "losses"} <= set(
        document["pairs"][0]
    )
    text = page.read_text(encoding="utf-8")
    for shown in ("macro mean", "small", "large", "bm25 - plain", "What was run"):
        assert shown in text
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)
    for form, start in (("csv", "measure,name"), ("markdown", "ndcg@10 over 2"), ("latex", "% group:")):
        said = CliRunner().invoke(app, [*arguments[:3], "--format", form])
        assert said.exit_code == 0, said.stderr
        assert said.stdout.startswith(start)
    assert "| result | macro mean |" in markdown(made.tables())
    assert r"\toprule" in latex(made.tables())
    report = CliRunner().invoke(app, ["report", str(suites / "bm25"), "--html", str(page)])
    assert report.exit_code == 0, report.stderr
    assert "Collection by collection" in page.read_text(encoding="utf-8")


def test_the_figures_have_a_row_for_each_mean_and_difference(suites: Path) -> None:
    table = compare([suites / "bm25", suites / "plain"]).figures()
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    assert [(row["name"], row["against"], row["collection"]) for row in rows] == [
        ("bm25", "", ""), ("bm25", "", "small"), ("bm25", "", "large"),
        ("plain", "", ""), ("plain", "", "small"), ("plain", "", "large"),
        ("bm25", "plain", ""), ("bm25", "plain", "small"), ("bm25", "plain", "large"),
    ]  # fmt: skip
    assert float(rows[0]["value"]) == pytest.approx((float(rows[1]["value"]) + float(rows[2]["value"])) / 2)


def test_the_gate_takes_suites_and_refuses_what_is_for_one_collection(suites: Path) -> None:
    def said(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*map(str, arguments)])
        return done.exit_code, done.stdout + " ".join(done.stderr.split())

    bm25, alone = suites / "bm25", suites / "alone"
    code, printed = said("gate", bm25, "--baseline", bm25, "--json")
    assert (code, json.loads(printed)["verdict"]) == (0, "pass")
    mixed = "bm25 is of a suite, and alone is not"
    for arguments, message in (
        (("gate", bm25, "--baseline", alone), mixed),
        (("gate", bm25, "--baseline", bm25, "--sequential"), "--sequential with a suite"),
        (("gate", alone, "--baseline", bm25), mixed),
        (("compare", bm25, alone), mixed),
        (("compare", bm25, "--groups"), "--groups with a suite"),
        (("pool", bm25), "bm25 is of a suite"),
    ):
        code, printed = said(*arguments)
        assert (code, message in printed) == (2, True), printed
    assert compare([bm25 / "small", suites / "plain" / "small"]).measure == "ndcg@10"
