"""Comparisons of result folders: what they say, and which they refuse."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from scipy import stats
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.comparison import Correction
from pipeline.comparison.side_by_side import Comparison, compare
from pipeline.core.errors import InputError
from pipeline.core.json_record import Hardware
from pipeline.results.folder import SavedResult
from pipeline.results.records import Manifest, Metrics
from pipeline.results.suite_folder import SavedSuite

QUERIES = [f"q{number}" for number in range(40)]


def compare_results(results: Sequence[SavedResult], *arguments: Any, **named: Any) -> Comparison:
    """Compare results of one collection."""
    return compare([SavedSuite.of_one(result) for result in results], *arguments, **named)


@pytest.fixture
def make() -> Callable[..., SavedResult]:
    """Makes results with random values, the same for the same seed; or with given ones."""

    def result(
        name: str, seed: int = 0, queries: list[str] = QUERIES, measures: tuple[str, ...] = ("ndcg@10", "mrr")
    ) -> SavedResult:
        values = np.random.default_rng(seed).beta(0.5, 0.7, (len(queries), len(measures)))
        stages = [
            {"stage": "passages", "seconds": 3.5, "items_per_second": 100.0, "bytes": 5},
            {"stage": "queries", "seconds": None, "items_per_second": 300.0, "bytes": 6},
            {"stage": "index", "seconds": None, "items_per_second": None, "bytes": 7},
            {"stage": "search", "seconds": 1.0, "items_per_second": 600.0, "bytes": 8},
        ]
        metrics = {
            "name": name,
            "queries": len(queries),
            "passages": 9,
            "metrics": dict(zip(measures, values.mean(axis=0).tolist(), strict=True)),
            "stages": stages,
        }
        manifest: dict[str, Any] = {"recipes": {"evaluate": {"qrels": {"qrels": "one"}}}, "hardware": {}}
        record, manifest = Metrics.model_validate(metrics), Manifest.model_validate(manifest)
        return SavedResult(Path("results", name), record, manifest, queries, list(measures), values)

    return result


def test_what_it_says_of_two_results(make: Callable[..., SavedResult]) -> None:
    results = make("one", 1), make("two", 2)
    comparison = compare_results(results, "RR")
    ours, theirs = (result.values[:, 1] for result in results)
    assert comparison.measure == "mrr"
    assert [entry.name for entry in comparison.results] == ["one", "two"]
    for entry, values in zip(comparison.results, (ours, theirs), strict=True):
        interval = stats.ttest_1samp(values, 0).confidence_interval()
        assert entry.mean == pytest.approx(values.mean(), abs=1e-12)
        assert (entry.ci_low, entry.ci_high) == pytest.approx(tuple(interval))
        assert (entry.queries, entry.index_bytes, entry.seconds) == (40, 7, 4.5)
        assert (entry.passages_per_second, entry.queries_per_second) == pytest.approx((100, 200))
    (pair,) = comparison.pairs
    interval = stats.ttest_rel(ours, theirs).confidence_interval()
    assert (pair.a, pair.b) == ("one", "two")
    assert pair.difference == pytest.approx(ours.mean() - theirs.mean())
    assert (pair.ci_low, pair.ci_high) == pytest.approx(tuple(interval))
    assert (pair.simultaneous_low, pair.simultaneous_high) == (None, None)  # one pair is all pairs
    assert pair.p_ttest == pytest.approx(stats.ttest_rel(ours, theirs).pvalue, abs=1e-9)
    assert pair.p_holm == pair.p_bh == pair.p_ttest
    deviation = (ours - theirs).std(ddof=1)
    assert pair.effect_size == pytest.approx((ours - theirs).mean() / deviation)
    assert pair.detectable == pytest.approx(0.454 * deviation, rel=0.01)  # d with 40 queries: G*Power 3.1
    assert pair.queries_needed is not None
    assert (pair.queries_needed > 40) == (pair.detectable > abs(pair.difference))
    assert pair.p_maxt == pair.p_randomization
    assert (pair.wins, pair.ties, pair.losses) == ((ours > theirs).sum(), 0, (ours < theirs).sum())


@pytest.mark.parametrize(
    ("stage", "left"), [("passages", (None, 200)), ("index", (None, 200)), ("search", (100, None))]
)
def test_a_speed_of_which_a_part_was_not_timed_is_unknown(
    make: Callable[..., SavedResult], stage: str, left: tuple[float | None, float | None]
) -> None:
    result = make("resumed, with nothing left to do")
    change = {"seconds": 0.1, "items_per_second": None}
    stages = tuple(
        row.model_copy(update=change) if row.stage == stage else row for row in result.record.stages
    )
    (entry,) = compare_results([_changed(result, stages=stages)]).results
    assert (entry.passages_per_second, entry.queries_per_second) == pytest.approx(left)


def test_a_t_test_alone_shows_no_difference(make: Callable[..., SavedResult]) -> None:
    one = make("one", queries=QUERIES[:2])
    two = replace(_named(one, "two"), values=one.values - 0.25)
    comparison = compare_results([one, two])
    (pair,) = comparison.pairs
    assert pair.p_holm < 0.05 < pair.p_randomization == 0.5  # 2 of 4 ways
    assert (pair.ci_low, pair.ci_high) == (None, None)
    assert not pair.shown
    assert [entry.letters for entry in comparison.results] == ["a", "a"]


def test_json_is_the_contract_s(make: Callable[..., SavedResult]) -> None:
    document = json.loads(json.dumps(compare_results([make("a", 1), make("b", 2)]).json(), allow_nan=False))
    assert {"measure", "results", "pairs"} <= set(document)
    assert {"name", "mean", "ci_low", "ci_high", "queries"} <= set(document["results"][0])
    assert {
        "a", "b", "difference", "p_ttest", "p_randomization", "p_holm", "wins", "ties", "losses"
    } <= set(document["pairs"][0])  # fmt: skip
    few = compare_results([make("a", 1, QUERIES[:8]), make("b", 2, QUERIES[:8])]).json()
    assert few["results"][0]["ci_low"] is few["pairs"][0]["ci_high"] is None


def test_every_pair_is_corrected_for_all_and_letters_follow(make: Callable[..., SavedResult]) -> None:
    base = make("base")
    worse = replace(base, values=base.values - 0.2 - make("noise", 5).values / 50)
    same = replace(base, values=base.values + 0.001 * np.resize([[1], [-1]], (40, 1)))
    comparison = compare_results([_named(worse, "worse"), base, _named(same, "same")])
    assert [(pair.a, pair.b) for pair in comparison.pairs] == [
        ("worse", "base"), ("worse", "same"), ("base", "same")
    ]  # fmt: skip
    assert [pair.shown for pair in comparison.pairs] == [True, True, False]
    assert [entry.letters for entry in comparison.results] == ["b", "a", "a"]
    assert comparison.pairs[0].p_holm >= comparison.pairs[0].p_ttest


@pytest.mark.parametrize("correction", list(Correction))
def test_no_interval_for_all_pairs_contradicts_its_star(
    make: Callable[..., SavedResult], correction: Correction
) -> None:
    base = make("0")
    shifts = [0, 0.01, 0.02, 0.05, 0.09, 0.1, 0.11, 0.12, 0.16]
    results = [
        replace(_named(base, f"+{shift}"), values=base.values + shift + make("noise", seed + 1).values / 6)
        for seed, shift in enumerate(shifts)
    ]
    results = [_named(result, result.record.name) for result in results]
    comparison = compare_results(results, correction=correction)
    assert {pair.shown for pair in comparison.pairs} == {True, False}
    for pair in comparison.pairs:
        low, high = pair.simultaneous_low, pair.simultaneous_high
        if correction is Correction.bh:
            assert (low, high) == (None, None)
            continue
        assert low is not None
        assert high is not None
        assert pair.ci_low is not None
        assert low <= pair.difference <= high
        assert (low >= 0 or high <= 0) == pair.shown
        assert low <= pair.ci_low or low == 0
    letters = {entry.name: set(entry.letters or "") for entry in comparison.results}
    assert all(bool(letters[pair.a] & letters[pair.b]) != pair.shown for pair in comparison.pairs)
    (pairs,) = (table for table in comparison.tables() if table.title.startswith("differences"))
    starred = [any(cell.endswith(" *") for cell in row) for row in pairs.rows]
    assert starred == [pair.shown for pair in comparison.pairs]


def test_a_baseline_is_all_that_is_tested_against(finished: Path, make: Callable[..., SavedResult]) -> None:
    results = [make(name, seed) for seed, name in enumerate("xyz")]
    all_pairs, against = compare_results(results), compare_results(results, baseline="y")
    assert [(pair.a, pair.b) for pair in against.pairs] == [("x", "y"), ("z", "y")]
    assert against.pairs[1].difference == -all_pairs.pairs[2].difference
    assert against.pairs[1].p_ttest == pytest.approx(all_pairs.pairs[2].p_ttest)
    assert against.pairs[1].p_holm < all_pairs.pairs[2].p_holm  # two tests instead of three
    assert (against.json()["baseline"], all_pairs.json()["baseline"]) == ("y", None)
    assert [column.name for column in against.tables()[0].columns].count("group") == 0
    folder = finished / "results" / "t"
    for baseline in (folder, "t", str(folder / ".." / "t")):
        assert compare([folder], baseline=baseline).pairs == []
    assert compare([folder, folder], baseline=folder).pairs[0].b == "t"
    with pytest.raises(InputError, match="nowhere does not exist"):
        compare([folder], baseline="nowhere")


def _named(result: SavedResult, name: str) -> SavedResult:
    means = dict(zip(result.measures, result.values.mean(axis=0).tolist(), strict=True))
    return _changed(result, name=name, metrics=means)


def _changed(result: SavedResult, **record: object) -> SavedResult:
    return replace(result, record=result.record.model_copy(update=record))


def test_identical_results_show_nothing(finished: Path) -> None:
    folder = finished / "results" / "t"
    comparison = compare([folder, folder])
    (pair,) = comparison.pairs
    assert (pair.difference, pair.p_ttest, pair.p_randomization, pair.p_holm) == (0, 1, 1, 1)
    assert (pair.wins, pair.ties, pair.losses) == (0, 114, 0)
    assert [entry.letters for entry in comparison.results] == ["a", "a"]
    assert [entry.name for entry in comparison.results] == ["t", "t#2"]
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    for entry in comparison.results:
        assert entry.mean == metrics["metrics"][comparison.measure]
        assert [entry.ci_low, entry.ci_high] == pytest.approx(metrics["intervals"][comparison.measure])
    assert pair.ci_low is None  # differences without spread
    assert comparison.results[0].index_bytes == metrics["stages"][3]["bytes"]


def test_queries_are_matched_by_id(make: Callable[..., SavedResult]) -> None:
    one, two = make("one", 1), make("two", 2)
    shuffled = replace(two, query_ids=two.query_ids[::-1], values=two.values[::-1])
    assert compare_results([one, shuffled]).json() == compare_results([one, two]).json()


@pytest.mark.parametrize("scale", [1, 1e6])
def test_rounding_wins_nothing(make: Callable[..., SavedResult], scale: float) -> None:
    one = replace(make("one"), values=scale * (1 + make("one").values))
    two = replace(_named(one, "two"), values=np.nextafter(one.values, np.inf))
    (pair,) = compare_results([one, two]).pairs
    assert (pair.ties, pair.p_ttest) == (40, 1)


def test_same_names_are_told_apart_by_their_paths(make: Callable[..., SavedResult]) -> None:
    one = make("t", 1)
    results = [replace(one, folder=Path(f"/{path}")) for path in ("a/x/t", "b/x/t", "b/y/t")]
    names = [entry.name for entry in compare_results([*results, make("u", 2)]).results]
    assert names == ["a/x/t", "b/x/t", "b/y/t", "u"]


def test_a_path_that_is_not_text_has_a_name_that_is(make: Callable[..., SavedResult]) -> None:
    one = make("t", 1)
    results = [replace(one, folder=Path(os.fsdecode(path))) for path in (b"/a\xff", b"/a\xfe", b"/b")]
    names = [entry.name for entry in compare_results(results).results]
    assert names == ["a\ufffd", "a\ufffd#2", "b"]


def test_measure_is_the_first_that_all_have(make: Callable[..., SavedResult]) -> None:
    results = make("one", measures=("map", "mrr", "ndcg@10")), make("two", measures=("ndcg@10", "mrr"))
    comparison = compare_results(results)
    assert (comparison.measure, comparison.measures) == ("mrr", ["mrr", "ndcg@10"])
    with pytest.raises(InputError, match=r"map is not among the measures of two\. Allowed: mrr, ndcg@10"):
        compare_results(results, "map")
    with pytest.raises(InputError, match="no measure is in all of one, three"):
        compare_results([results[0], make("three", measures=("recall@5",))])


def test_other_queries_are_refused(make: Callable[..., SavedResult]) -> None:
    with pytest.raises(InputError, match="different queries: 40 and 39, 'q39' only in one"):
        compare_results([make("one"), make("two", queries=QUERIES[:-1])])


def test_other_judgments_are_refused_and_other_passages_told(make: Callable[..., SavedResult]) -> None:
    one, two = make("one", 1), make("two", 2)
    judged = {"evaluate": {"qrels": {"qrels": "two"}}}
    with pytest.raises(InputError, match="one and two were scored by different judgments"):
        compare_results([one, replace(two, manifest=two.manifest.model_copy(update={"recipes": judged}))])
    assert compare_results([one, two]).notes == []
    larger = _changed(two, passages=10)
    (note,) = compare_results([one, larger]).notes
    assert "different passages, 9 and 10" in note


def ran_on(
    result: SavedResult, hardware: dict[str, Any], threads: int | None, last: str = "y"
) -> SavedResult:
    """The result with stages computed on some hardware, and written by a run on a processor named `last`."""
    made = {"hardware": Hardware(cpu="x", **hardware), "threads": threads}
    stages = tuple(row.model_copy(update=made) for row in result.record.stages)
    manifest = result.manifest.model_copy(update={"hardware": Hardware(cpu=last)})
    return replace(result, record=result.record.model_copy(update={"stages": stages}), manifest=manifest)


@pytest.mark.parametrize(
    ("ours", "theirs", "threads", "told"),
    [
        ({"gpus": ("NVIDIA H200",)}, {"gpus": ("NVIDIA T4",)}, 2, True),
        ({"gpus": ("NVIDIA T4",)}, {"gpus": ()}, 2, True),
        ({"gpus": ("NVIDIA T4",)}, {"gpus": ("NVIDIA T4",)}, 2, False),
        ({"gpus": ()}, {}, 2, False),
        ({"system": "Linux-6.1", "memory_gb": 8}, {"system": "Linux-6.2", "memory_gb": 9}, 2, False),
        ({"cores": 1}, {"cores": 2}, 2, True),
        ({}, {}, 1, True),
    ],
)
def test_other_processors_are_told_by_the_machine_of_each_stage(
    make: Callable[..., SavedResult], ours: dict[str, Any], theirs: dict[str, Any], threads: int, told: bool
) -> None:
    one, two = ran_on(make("one", 1), ours, 2), ran_on(make("two", 2), theirs, threads, last="z")
    notes = [note for note in compare_results([one, two]).notes if "different hardware" in note]
    assert len(notes) == told
    assert not notes or "computed passages, search on" in notes[0]


def benchmarco(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Result:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_one_sentence_says_what_is_shown(make: Callable[..., SavedResult]) -> None:
    low, high, like = make("low", 1), make("high", 1), make("like", 1)
    high.values[:] = np.minimum(low.values + np.random.default_rng(2).uniform(0, 0.2, low.values.shape), 1)
    like.values[:] = high.values[::-1]
    for each in (high, like):
        each.record.metrics.update(zip(each.measures, each.values.mean(axis=0).tolist(), strict=True))
    pair = compare_results([low, high])
    (shown,) = pair.pairs
    assert pair.verdict == (
        f"high is better than low in ndcg@10 by {-shown.difference:.4f} "
        f"[{-shown.ci_high:.4f}, {-shown.ci_low:.4f}] (p < 0.0001)"
    )
    assert len(pair.short_tables()) == 1
    assert compare_results([high, like]).verdict.startswith("No difference shown between ")
    both = compare_results([low, high, like])
    assert re.match(r"(high|like) has the highest ndcg@10, 0\.\d{4}; ", both.verdict)
    assert "no difference shown from " in both.verdict
    assert len(both.short_tables()) == 2
    against = compare_results([low, high, like], baseline="low").verdict
    assert against.startswith("Against low in ndcg@10; better: high")
    alone = compare_results([low]).verdict
    assert re.fullmatch(r"ndcg@10 of low is 0\.\d{4} \[0\.\d{4}, 0\.\d{4}\] over \d+ queries", alone)


def test_the_command_prints_each_form(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished / "results" / "t"
    printed = {
        form: benchmarco(monkeypatch, "compare", folder, folder, "--format", form).stdout
        for form in ("table", "csv", "markdown", "latex")
    }
    assert printed["table"].startswith("No difference shown between ")
    assert "0/114/0" not in printed["table"]
    assert "0/114/0" in benchmarco(monkeypatch, "compare", folder, folder, "-v").stdout
    assert printed["csv"].startswith("measure,name,against,value,")
    assert printed["markdown"].startswith("ndcg@10 over 114 queries\n\n| result | mean |")
    assert printed["latex"].count(r"\end{tabular}") == 3  # results, pairs, what changes
    done = benchmarco(monkeypatch, "compare", folder, folder, "--measure", "RR@10", "--json")
    assert (json.loads(done.stdout)["measure"], done.exit_code) == ("mrr@10", 0)


def test_a_folder_s_name_is_printed_as_it_is(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rich has markup and emoji of its own: `[bold]` and `:x:`."""
    folders = [tmp_path / name for name in ("[bold]", ":x:")]
    for folder in folders:
        shutil.copytree(finished / "results" / "t", folder / "t")
    printed = benchmarco(monkeypatch, "compare", *(folder / "t" for folder in folders), "-v").stdout
    assert "[bold]/t - :x:/t" in printed


def test_a_difference_below_that_of_what_is_judged_is_noted(make: Callable[..., SavedResult]) -> None:
    def judged(result: SavedResult, share: float) -> SavedResult:
        ends = {"ndcg@10": {"judged": share}}
        metrics = result.record.model_dump() | {"unjudged": ends}
        return replace(result, record=Metrics.model_validate(metrics))

    one, other = make("one", 1), make("two", 2)
    apart = abs(one.values[:, 0].mean() - other.values[:, 0].mean())
    notes = compare_results([judged(one, 0.9), judged(other, 0.9 - apart * 1.1)]).notes
    assert notes == [
        f"one and two differ by {apart:.4f}, less than the judged shares of what they found, 0.9000 and "
        f"{0.9 - apart * 1.1:.4f}: missing judgments may decide (benchmarco pool)"
    ]
    assert compare_results([judged(one, 0.9), judged(other, 0.9 - apart * 0.9)]).notes == []
    assert compare_results([judged(one, 0.9), judged(other, 0.1)], "mrr").notes == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["compare", "nowhere"], "nowhere does not exist"),
        (["compare", "t", "--measure", "ndgc@5"], "unknown measure 'ndgc@5'"),
        (["compare", "t", "--measure", "ndcg@5"], "ndcg@5 is not among the measures of t"),
        (["compare", "t", "--json", "--format", "csv"], "--json and --format csv"),
        (["compare", "t", "--html", "none/page.html"], "no folder none"),
    ],
)
def test_a_mistake_is_one_message(
    finished: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.chdir(finished / "results")
    done = benchmarco(monkeypatch, *arguments)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert expected in done.stderr
