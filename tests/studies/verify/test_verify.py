"""Published scores: the forms they are read in, and the verdicts of `verify`."""

import json
import logging
import os
import re
import shlex
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from comparison.made import config
from inside import set_clock, watch
from workplaces import benchmarco, document, read_json, seal

from pipeline import InputError, compare, run_benchmark, write_collection
from pipeline.studies.page import render_page
from pipeline.studies.verify import read_published, verify

HEADER = "model,collection,measure,value\n"
ANSERINI = """\
metrics:
- {metric: AP, params: -m map}
- {metric: P30, params: -m P.30}
- {metric: "RR@10", params: -c -M 10 -m recip_rank}
- {metric: "R@2", params: -c -l 2 -m recall.2}
topics:
- {name: queries, id: cacm}
models:
- name: bm25
  results: {AP: [0.3123], P30: [0.1942], "RR@10": [0.5], "R@2": [0.50]}
"""
PYSERINI = """\
conditions:
- name: bm25
  topics:
  - eval_key: dl19-passage
    scores:
    - {MAP: 0.3013, nDCG@10: 0.5058, R@1K: 0.7501}
- name: dense
  datasets:
  - dataset: scifact
    scores:
    - {nDCG@10: 0.6789}
"""
CARD = """\
---
license: mit
model-index:
- name: mine
  results:
  - task: {type: Retrieval}
    dataset: {name: MTEB SciFact, type: mteb/scifact, split: test}
    metrics:
    - {type: ndcg_at_10, value: 64.508}
    - {type: nauc_map_at_1, value: 3.1}
  - task: {type: information-retrieval}
    dataset: {name: NanoNQ, type: NanoNQ}
    metrics:
    - {type: cosine_accuracy@1, value: 0.25}
---
A model.
"""
MTEB = """\
{"task_name": "SciFact", "mteb_version": "1.12.75", "scores": {
  "train": [{"hf_subset": "default", "ndcg_at_10": 0.6}],
  "test": [{"hf_subset": "default", "main_score": 0.64508, "ndcg_at_10": 0.64508, "hit_rate_at_1": 0.5,
            "nauc_mrr_at_1_std": 0.2, "languages": ["eng-Latn"]}]}}
"""


OLD_MTEB = '{"mteb_dataset_name": "SciFact", "test": {"ndcg_at_10": 0.50, "evaluation_time": 1}}'
PUBLISHED: dict[str, tuple[str, list[tuple[str, str, str, str, float, int]]]] = {
    "cacm.yaml": (ANSERINI, [
        ("bm25", "cacm", "", "map", 0.3123, 4),
        ("bm25", "cacm", "", "precision@30", 0.1942, 4),
        ("bm25", "cacm", "", "mrr@10", 0.5, 4),
        ("bm25", "cacm", "", "recall(rel=2)@2", 0.5, 4),
    ]),
    "two.yml": (PYSERINI, [
        ("bm25", "dl19-passage", "", "map(rel=2)", 0.3013, 4),
        ("bm25", "dl19-passage", "", "ndcg@10", 0.5058, 4),
        ("bm25", "dl19-passage", "", "recall(rel=2)@1000", 0.7501, 4),
        ("dense", "scifact", "", "ndcg@10", 0.6789, 4),
    ]),
    "README.md": (CARD, [
        ("mine", "SciFact", "test", "ndcg@10", 0.64508, 5), ("mine", "NanoNQ", "", "success@1", 0.25, 5)
    ]),
    "SciFact.json": (MTEB, [
        ("", "SciFact", "train", "ndcg@10", 0.6, 5),
        ("", "SciFact", "test", "ndcg@10", 0.64508, 5),
        ("", "SciFact", "test", "success@1", 0.5, 5),
    ]),
    "before-1.11.json": (OLD_MTEB, [("", "SciFact", "test", "ndcg@10", 0.5, 5)]),
    "mine.csv": (f"{HEADER}m,c,P_10,0.120\n", [("m", "c", "", "precision@10", 0.12, 3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_people_publish_is_read(tmp_path: Path, name: str) -> None:
    text, expected = PUBLISHED[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_published(tmp_path / name)
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert found == read_published(tmp_path / name)
    assert [
        (each.model, each.collection, each.split, each.score.measure, each.score.value, each.score.digits)
        for each in found
    ] == expected


def test_files_without_scores_are_refused(tmp_path: Path) -> None:
    for name, text in (
        ("x.json", "{}"),
        ("x.json", "[1"),
        ("x.yaml", "a: [}"),
        ("x.yaml", "conditions: 3"),
        ("x.md", "no metadata"),
        ("x.csv", "model,measure\n"),
        ("x.csv", f"{HEADER}m,c,ndcg@10,high\n"),
        ("x.pdf", "0.5"),
        ("percent.json", '{"task_name": "t", "scores": {"test": [{"ndcg_at_10": 67.2}]}}'),
        ("percent.csv", f"{HEADER}m,c,ndcg@10,67.2\n"),
        ("negative.csv", f"{HEADER}m,c,ndcg@10,-0.1\n"),
        ("nan.csv", f"{HEADER}m,c,ndcg@10,nan\n"),
        ("digits.csv", "model,collection,measure,value,digits\nm,c,ndcg@10,0.5,-400\n"),
        ("tolerance.csv", "model,collection,measure,value,tolerance\nm,c,ndcg@10,0.5,inf\n"),
        ("tolerance.csv", "model,collection,measure,value,tolerance\nm,c,ndcg@10,0.5,-1\n"),
        ("tolerance.csv", "model,collection,measure,value,tolerance\nm,c,ndcg@10,0.5,nan\n"),
        (
            "bomb.yaml",
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(
                f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n"
                for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
        ),
        ("deep.json", "[" * 200_000 + "]" * 200_000),
        ("deep.yaml", "[" * 2_000),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=name):
            read_published(tmp_path / name)
    for content, said in (
        (f"{HEADER}m,c,ndcg@10,64.5%\n".encode(), r"ndcg@10 is '64\.5%', which is no number"),
        (HEADER.replace(",", ";").encode(), r"no column model.*separated by ';': write commas"),
        (f"{HEADER}m,c,ndcg@10,0.5\n".encode("utf-16"), r"Convert it to UTF-8"),
    ):
        (tmp_path / "x.csv").write_bytes(content)
        with pytest.raises(InputError, match=said):
            read_published(tmp_path / "x.csv")
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("pipe.json", "none.json"):
        with pytest.raises(InputError, match=name):
            read_published(tmp_path / name)


Configure = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture
def configure(cache: Path, tmp_path: Path) -> Configure:
    """A config with published scores: the sample with BM25, whose recall@100 is near 1 and below it."""

    def made(*expected: dict[str, Any], **changes: Any) -> dict[str, Any]:
        measures = {"measures": ["ndcg@10", "map@10"]}
        sections = {"search": {"top_k": 100}, "evaluate": measures, "cache": str(cache), "name": "sample"}
        return config(tmp_path, **sections | {"expected": list(expected)} | changes)

    return made


def score(given: dict[str, Any], measure: str = "ndcg@10") -> float:
    """What a run of a config measures."""
    value: float = run_benchmark(given).metrics[measure]
    return value


def written(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_number_of_json_has_the_places_of_its_source(configure: Configure, tmp_path: Path) -> None:
    """JSON drops zeros: 0.9 of MTEB is 0.90000, and no score of 0.904 is that."""
    result = run_benchmark(configure())
    ndcg = result.metrics["ndcg@10"]
    for shown in (1, round(ndcg, 1), round(ndcg, 5)):
        file = tmp_path / "Sample.json"
        entry = [{"hf_subset": "default", "ndcg_at_10": shown}]
        file.write_text(json.dumps({"task_name": "sample", "scores": {"test": entry}}), encoding="utf-8")
        (cell,) = verify([result.folder], expected=[file]).cells
        assert cell.tolerance == pytest.approx(0.001 + 0.000005)
        assert cell.verdict == ("reproduced" if shown == round(ndcg, 5) else "not reproduced")
    one_source = [{"measure": "ndcg@10", "value": round(ndcg, 1)}, {"measure": "map@10", "value": 0.12345}]
    assert run_benchmark(configure(*one_source)).record.expected[0].verdict == "not reproduced"


FRUIT = {"a": "a red apple", "b": "an apple tree", "c": "a red car", "d": "a boat"}


def test_a_run_shows_the_verdict_and_a_result_can_be_verified_again(configure: Configure) -> None:
    ndcg = score(configure())
    with pytest.raises(InputError, match="no published score"):
        verify([run_benchmark(configure()).folder])
    half = {"measure": "ndcg@10", "digits": 2}
    published = [
        {"measure": "ndcg@10", "value": round(ndcg, 4), "source": "a paper"},
        {"measure": "success@1", "value": 0.25},
        {"measure": "recall@1000", "value": 0.5},
        half | {"value": ndcg + 0.0059},  # a tolerance of 0.001 and half a unit of the last digit
        half | {"value": ndcg + 0.0061},
        {"measure": "ndcg@10", "value": ndcg - 0.0061, "tolerance": 0.01, "digits": 4},
    ]
    result = run_benchmark(configure(*published))
    cells = result.record.expected
    assert [cell.verdict for cell in cells] == [
        "reproduced", "not reproduced", "not comparable", "reproduced", "not reproduced", "reproduced",
    ]  # fmt: skip
    assert cells[0].tolerance == pytest.approx(0.001 + 0.00005)
    (table,) = result.tables()
    assert [column.name for column in table.columns][-2:] == ["published", "verdict"]
    said = "recall@1000, published as 0.5: not comparable, cutoff"
    assert any(note.startswith(said) for note in table.notes)
    again = verify([result.folder])
    assert [(cell.measure, cell.verdict) for cell in again.cells] == [
        (cell.measure, cell.verdict) for cell in cells
    ]
    few = configure({"measure": "ndcg@10", "value": 0.5}, data={"source": "sample", "queries": 5})
    (cell,) = run_benchmark(few).record.expected
    assert (cell.verdict, cell.got is None) == ("not comparable", False)
    assert cell.reason == "measured on the first 5 queries only"


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    """Options of `verify`: a run of one query, its judgments, and `scores.csv`, which is not there."""
    (tmp_path / "run.trec").write_text("1 Q0 a 1 2.0 x\n1 Q0 b-7 2 1.0 x\n", encoding="utf-8")
    (tmp_path / "qrels.trec").write_text("1 0 b-7 1\n", encoding="utf-8")
    csv = tmp_path / "scores.csv"
    return ["--expected", csv, "--run", tmp_path / "run.trec", "--qrels", tmp_path / "qrels.trec"]


@pytest.mark.parametrize(
    ("line", "code", "verdict"),
    [("mrr@2,0.5", 0, "reproduced"), ("mrr@2,0.7", 3, "not reproduced"), ("mrr,0.5", 4, "not comparable")],
)
def test_the_command_verifies_a_trec_run(
    files: list[object], tmp_path: Path, line: str, code: int, verdict: str
) -> None:
    (tmp_path / "scores.csv").write_text(f"{HEADER}m,c,{line}\n", encoding="utf-8")
    found = document("verify", *files, code=code)
    assert (found["verdict"], found["cells"][0]["verdict"]) == (verdict, verdict)


CACM = Path(__file__).resolve().parents[3] / "shared" / "data" / "cacm"


@pytest.mark.skipif(not CACM.is_dir(), reason="needs ../shared/data/cacm")
def test_a_published_figure_of_anserini(tmp_path: Path) -> None:
    csv = tmp_path / "cacm.csv"
    csv.write_text(f"{HEADER}bm25,cacm,P@30,0.1942\n", encoding="utf-8")
    run = CACM / "runs" / "anserini-bm25-top30.trec.gz"
    made = verify(run=run, qrels=CACM / "qrels" / "as-published.tsv", expected=[csv])
    assert made.verdict == "reproduced"
    made = verify(run=run, qrels=CACM / "qrels" / "test.tsv", expected=[csv], why=True)
    assert made.verdict == "not reproduced"
    (cell,) = made.cells
    assert cell.why
    assert cell.why[0].change.startswith("ids of judgments without leading zeros")
    assert abs(cell.why[0].difference) < 0.00005


PLANTED: dict[str, tuple[dict[str, Any], str]] = {
    "k1 1.5, b 0.75": ({"model": {"backend": "bm25", "k1": 1.5, "b": 0.75}}, "ndcg@10"),
    "model.stemmer null": ({"model": {"backend": "bm25", "stemmer": None}}, "ndcg@10"),
    "model.stop_words null": ({"model": {"backend": "bm25", "stop_words": None}}, "ndcg@10"),
    "gain 2^grade - 1": ({"evaluate": {"measures": ["ndcg(gain=exp)@10"]}}, "ndcg(gain=exp)@10"),
    "average precision over": (
        {"evaluate": {"measures": ["map(norm=retrieved)@10"]}}, "map(norm=retrieved)@10"
    ),
}  # fmt: skip


def test_each_planted_cause_is_named_first(configure: Configure) -> None:
    given = [
        {
            "measure": re.sub(r"\(.*\)", "", measure), "source": cause, "tolerance": 0.0001,
            "value": score(configure(name="theirs", **changes), measure),
        }
        for cause, (changes, measure) in PLANTED.items()
    ]  # fmt: skip
    found = verify([run_benchmark(configure(*given)).folder], why=True, minutes=60)
    assert [cell.verdict for cell in found.cells] == ["not reproduced"] * len(PLANTED)
    for cell in found.cells:
        assert cell.why
        assert cell.why[0].change.startswith(cell.source)
        assert abs(cell.why[0].difference) <= cell.tolerance


def test_a_planted_cause_of_a_dense_model_is_named_first(bge_folder: Path, configure: Configure) -> None:
    """A change of queries alone, and one that encodes passages again."""
    model = {"name": str(bge_folder), "backend": "native"}
    for planted in ({"query_instruction": "query: "}, {"pooling": "mean"}):
        theirs = score(configure(name="theirs", model=model | planted))
        result = run_benchmark(configure({"measure": "ndcg@10", "value": theirs, "digits": 6}, model=model))
        (cell,) = verify([result.folder], why=True, minutes=60).cells
        assert cell.why
        ((name, value),) = planted.items()
        change = f'model.{name} "{value}"'
        assert (cell.why[0].change, cell.why[0].got) == (change, theirs)
        assert cell.explained_by == (change,)
        assert ('model.pooling "mean"' in cell.not_tried) == (name == "query_instruction")
        assert not any("without" in tried for tried in cell.not_tried)


@pytest.fixture
def suite(tmp_path: Path, configure: Configure) -> dict[str, Any]:
    """BM25 on two collections: the sample, and four passages; each with a published score."""
    judged = {"1": {"b": 1}, "2": {"c": 1}}
    small = write_collection(tmp_path / "small", FRUIT, {"1": "red apple", "2": "car"}, judged)
    collections = {
        "small": {"data": small, "expected": [{"measure": "success@1", "value": 1.0}]},
        "sample": {"data": {"source": "sample"}, "expected": [{"measure": "ndcg@10", "value": 0.9}]},
    }
    path = written(tmp_path / "two.yaml", {"collections": collections})
    return configure(name="two", data={"source": "suite", "suite": str(path)})


def test_swapped_scores_and_other_judgments_are_named(
    tmp_path: Path, suite: dict[str, Any], configure: Configure
) -> None:
    got = {each.name: each.record.metrics["ndcg@10"] for each in run_benchmark(suite).collections}
    published = read_json(Path(suite["data"]["suite"]))
    for name, other in (("small", "sample"), ("sample", "small")):
        published["collections"][name]["expected"] = [{"measure": "ndcg@10", "value": got[other]}]
    suite["data"]["suite"] = str(written(tmp_path / "swapped.yaml", published))
    found = verify([run_benchmark(suite).folder], why=True, minutes=60)
    assert [(cell.verdict, cell.why) for cell in found.cells] == [("not reproduced", None)] * 2
    assert "on small and for " in found.exchanged()[0]

    data = write_collection(tmp_path / "judged", FRUIT, {"1": "red apple", "2": "car"}, {"1": {"b": 1}})
    (tmp_path / "judged/qrels/old.tsv").write_text(
        "query-id\tcorpus-id\tscore\n1\ta\t1\n2\tc\t1\n", encoding="utf-8"
    )
    theirs = score(configure(data={**data, "split": "old"}, name="old"))
    (cell,) = verify(
        [run_benchmark(configure({"measure": "ndcg@10", "value": theirs}, data=data)).folder],
        why=True,
        minutes=60,
    ).cells
    assert cell.explained_by == ('data.split "old"',)


def test_each_collection_of_a_suite_has_its_published_scores(
    tmp_path: Path, suite: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = run_benchmark(suite)
    expected = [("small", "success@1", "not reproduced"), ("sample", "ndcg@10", "not reproduced")]
    _, scores = made.tables()
    names = [column.name for column in scores.columns]
    parts = [names.index(name) for name in ("collection", "measure", "verdict")]
    assert [tuple(row[part] for part in parts) for row in scores.rows] == expected
    path = written(tmp_path / "suite.yaml", suite)
    with caplog.at_level(logging.WARNING):
        tried = [verify([made.folder], why=True, minutes=60), verify([path])]
    assert "had other settings" not in caplog.text  # of trials
    for found in tried:
        assert [(each.collection, each.measure, each.verdict) for each in found.cells] == expected
    assert all(cell.why for cell in tried[0].cells)
    assert any("k1 1.2" in each.change for each in tried[0].cells[1].why or ())
    page = render_page(compare([made.folder]))
    assert page.count('<section id="published">') == 1
    assert "not reproduced" in page


def drop_published(suite: dict[str, Any]) -> None:
    """Leave out the published scores of a suite's file."""
    path = Path(suite["data"]["suite"])
    listed = read_json(path)
    for each in listed["collections"].values():
        each.pop("expected")
    written(path, listed)


def test_scores_of_one_collection_are_not_taken_for_those_of_a_suite_s_others(
    tmp_path: Path, suite: dict[str, Any]
) -> None:
    drop_published(suite)
    target, csv = written(tmp_path / "suite.yaml", suite), tmp_path / "published.csv"
    csv.write_text(f"{HEADER}bm25,sample,ndcg@10,0.5\n", encoding="utf-8")
    for each in (target, run_benchmark(suite).folder):
        (cell,) = verify([each], expected=[csv]).cells  # the folder has the score from the first time
        assert cell.collection == "sample"
    csv.write_text(f"{HEADER}bm25,other,ndcg@10,0.5\n", encoding="utf-8")
    with pytest.raises(InputError, match="no published score"):
        verify([target], expected=[csv])


def test_only_settings_that_are_needed_and_safe_are_run(tmp_path: Path, configure: Configure) -> None:
    texts = {
        "a": {"title": "red apple", "text": ""},
        "b": "an apple and a pear",
        "c": "the red car of a friend",
    }
    asked = {"1": "red apple", "2": "a friend's car"}
    data = write_collection(tmp_path / "titles", texts, asked, {"1": {"a": 1}, "2": {"c": 1}})
    expected = {"measure": "success@1", "value": 0.5, "digits": 4, "source": "a <paper>"}
    folder = run_benchmark(configure(expected, data=data)).folder
    page = render_page(compare([folder]))
    assert page.count('<section id="published">') == 1
    assert "a &lt;paper&gt;" in page
    with pytest.raises(InputError, match="nothing is run"):
        verify([folder], overrides=["search.top_k=50"])
    path = folder / "manifest.json"
    manifest = read_json(path)
    manifest["config"]["engine"] = {"kind": "ray", "address": "elsewhere:6379"}
    written(path, manifest)
    seal(folder)
    assert verify([folder]).verdict == "not reproduced"  # runs nothing
    with pytest.raises(InputError, match="send data and code to the cluster elsewhere:6379"):
        verify([folder], why=True)
    (cell,) = verify([folder], why=True, minutes=60, overrides=["engine={kind: local}"]).cells
    assert cell.why
    # titles are left out of passages without a text, too
    assert (cell.why[0].change, cell.why[0].got) == ("data.title_separator null", 0.5)
    plain = run_benchmark(configure(name="plain", data=data)).folder
    assert 'id="published"' not in render_page(compare([plain]))


@pytest.fixture
def graded(tmp_path: Path) -> list[object]:
    """A run whose ten hits have grade 2, of twenty passages that are relevant."""
    qrels = "".join(f"1 0 d{n:02} {2 if n < 10 else 1}\n" for n in range(20))
    (tmp_path / "graded.qrels").write_text(qrels, encoding="utf-8")
    hits = "".join(f"1 Q0 d{n:02} {n + 1} {99 - n} x\n" for n in range(10))
    (tmp_path / "graded.trec").write_text(hits, encoding="utf-8")
    return ["--run", tmp_path / "graded.trec", "--qrels", tmp_path / "graded.qrels"]


def test_changes_that_give_the_same_digits_are_candidates(tmp_path: Path, graded: list[object]) -> None:
    csv = tmp_path / "published.csv"
    csv.write_text(f"{HEADER}m,c,recall@10,1.0\n", encoding="utf-8")
    command = ("verify", *graded, "--expected", csv, "--why")
    (cell,) = document(*command, "--json", code=3)["cells"]
    assert cell["explained_by"] == ["grades from 2 count as relevant", "recall over at most k"]
    lines = benchmarco(*command, code=3).stdout
    assert "recall@10: 2 changes give the published digits, each a candidate" in lines


def test_what_leaves_more_than_the_last_digit_explains_nothing(tmp_path: Path, graded: list[object]) -> None:
    csv = tmp_path / "published.csv"
    csv.write_text(f"{HEADER}m,c,recall@10,0.9995\nm,c,map@10,0.5\n", encoding="utf-8")
    command = ("verify", *graded, "--expected", csv, "--why")
    recall, average = document(*command, "--json", code=3)["cells"]
    assert recall["explained_by"] == []
    assert average["verdict"] == "reproduced"
    lines = benchmarco(*command, code=3).stdout
    assert (
        "recall@10: nothing that was tried explains it; nearest: recall over at most k (leaves 0.0005"
        in lines
    )
    # of changes, those that move the measure
    assert "grades from 3 count as relevant" in (changes := [tried["change"] for tried in recall["why"]])
    assert not any(change.startswith(("map", "average", "gain")) for change in changes)


def test_repeated_passages_are_named(tmp_path: Path, configure: Configure) -> None:
    twice = FRUIT | {f"{name}-again": text for name, text in FRUIT.items()}
    asked, judged = {"1": "apple tree", "2": "red car"}, {"1": {"a": 1}, "2": {"a": 1}}
    theirs, mine = (
        write_collection(tmp_path / name, passages, asked, judged)
        for name, passages in (("theirs", FRUIT), ("mine", twice))
    )
    value = score(configure(data=theirs, name="theirs"))
    folder = run_benchmark(configure({"measure": "ndcg@10", "value": value}, data=mine)).folder
    (cell,) = verify([folder], why=True).cells
    assert cell.verdict == "not reproduced"
    assert cell.why
    assert cell.why[0].change == "passages with an earlier one's text removed"


def test_minutes_are_those_of_all_targets(
    tmp_path: Path, suite: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now, trials = 0.0, 0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()

    def an_hour(*_: Any) -> None:
        clock.now += 3600
        clock.trials += 1

    set_clock(monkeypatch, clock)
    watch(monkeypatch, "try a setting", an_hour)
    found = verify([run_benchmark(suite).folder], why=True, minutes=10)
    assert clock.trials == 1  # of the first collection; the second has the evaluation alone
    assert all(cell.why for cell in found.cells)
    for cell in found.cells:  # all that can be tried of BM25, in order
        assert cell.not_tried[0].startswith("k1 1.")
        assert "data.title_separator null" in cell.not_tried
    notes = [note for table in found.tables()[1:] for note in table.notes]
    assert sum("changes were not tried; the next would be k1 1." in note for note in notes) == 2


def test_tables_of_verdicts_as_markdown_and_as_pages(files: list[object], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    rows = "<m>,c,mrr@2,0.9,a|b\n<m>,c,recall@1,0,\n"
    (tmp_path / "scores.csv").write_text(f"{HEADER.strip()},source\n{rows}", encoding="utf-8")
    lines = benchmarco("verify", *files, "--why", "--markdown", "--html", page, code=3).stdout.splitlines()
    assert lines[0] == "2 published scores: 1 reproduced, 1 not reproduced"
    header, rule, first, second = (line for line in lines[2:6])
    columns = ["model", "collection", "measure", "expected", "got", "difference", "verdict", "source"]
    assert header == f"| {' | '.join(columns)} |"
    assert rule.count("|") == len(columns) + 1
    assert re.split(r" (?<!\\)\| ", first.strip("| ")) == [
        r"\<m\>", "c", "mrr@2", "0.9000", "0.5000", "-0.4000", "not reproduced", r"a\|b",
    ]  # fmt: skip
    assert "0.0000" in second
    assert any(line.startswith("mrr@2: ") for line in lines)
    again = ["verify", *map(str, files), "--why"]
    command = shlex.join(["benchmarco", *again])
    plain = [line.replace("\\", "") for line in lines]
    assert any(line.endswith(f", benchmarco {version('benchmarco')}: {command}") for line in plain)
    found = document(*again, code=3)
    assert (found["command"], found["version"]) == (command, version("benchmarco"))
    html = page.read_text(encoding="utf-8")
    assert html.count("<table>") == html.count("</table>") == 2
    assert "&lt;m&gt;" in html
    assert "<m>" not in html


def test_published_scores_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("q Q0 d 1 1.0 t\n")
    (tmp_path / "qrels").write_text("q 0 d 1\n")
    (tmp_path / "published.csv").write_text(f"{HEADER}m,c,mrr@1,0.61\nm,c,precision@1,0.4\nm,c,map@1,0.30\n")
    files = {name: tmp_path / name for name in ("run.trec", "qrels", "published.csv")}
    verified = verify(run=files["run.trec"], qrels=files["qrels"], expected=[files["published.csv"]])
    (said,) = verified.contradictions()
    assert said.startswith(
        "Published for m on c, but impossible together: mrr@1 0.61000, precision@1 0.40000 ("
    )
    assert said in verified.tables()[0].notes


def test_published_scores_of_two_collections_that_are_exchanged_are_recognised(
    tmp_path: Path, suite: dict[str, Any]
) -> None:
    drop_published(suite)
    suite["evaluate"] = {"measures": ["ndcg@10", "map@10"]}
    made = run_benchmark(suite)
    scores = {each.name: each.record.metrics for each in made.collections}
    assert scores["small"]["ndcg@10"] != pytest.approx(scores["sample"]["ndcg@10"], abs=0.01)
    csv, other = tmp_path / "published.csv", {"small": "sample", "sample": "small"}
    lines = [
        f"bm25,{other[name]},{measure},{value:.5f}\n"
        for name, means in scores.items()
        for measure, value in means.items()
    ]
    csv.write_text(HEADER + "".join(lines), encoding="utf-8")
    said = "may be exchanged: each reproduces what was measured for the other"
    assert [said in each for each in verify([made.folder], expected=[csv]).exchanged()] == [True]
    csv.write_text(HEADER + "".join(lines[:-1]) + lines[-1].replace("0.", "0.1"), encoding="utf-8")
    assert not verify([made.folder], expected=[csv]).exchanged()
