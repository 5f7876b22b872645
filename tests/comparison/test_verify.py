"""Published scores: the forms they are read in, and the verdicts of `verify`."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.api import run_benchmark, verify
from pipeline.cli import app
from pipeline.comparison.side_by_side import compare
from pipeline.core.errors import InputError
from pipeline.report.page.render import render_page
from pipeline.results.published import read_published
from pipeline.run import causes, verification

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


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "cacm.yaml",
            ANSERINI,
            [
                ("bm25", "cacm", "", "map", 0.3123, 4),
                ("bm25", "cacm", "", "precision@30", 0.1942, 4),
                ("bm25", "cacm", "", "mrr@10", 0.5, 1),
                ("bm25", "cacm", "", "recall(rel=2)@2", 0.5, 2),
            ],
        ),
        (
            "two.yml",
            PYSERINI,
            [
                ("bm25", "dl19-passage", "", "map(rel=2)", 0.3013, 4),
                ("bm25", "dl19-passage", "", "ndcg@10", 0.5058, 4),
                ("bm25", "dl19-passage", "", "recall(rel=2)@1000", 0.7501, 4),
                ("dense", "scifact", "", "ndcg@10", 0.6789, 4),
            ],
        ),
        (
            "README.md",
            CARD,
            [
                ("mine", "SciFact", "test", "ndcg@10", 0.64508, 5),
                ("mine", "NanoNQ", "", "success@1", 0.25, 2),
            ],
        ),
        (
            "SciFact.json",
            MTEB,
            [
                ("", "SciFact", "train", "ndcg@10", 0.6, 1),
                ("", "SciFact", "test", "ndcg@10", 0.64508, 5),
                ("", "SciFact", "test", "success@1", 0.5, 1),
            ],
        ),
        (
            "before-1.11.json",
            '{"mteb_dataset_name": "SciFact", "test": {"ndcg_at_10": 0.50, "evaluation_time": 1}}',
            [("", "SciFact", "test", "ndcg@10", 0.5, 2)],
        ),
        (
            "mine.csv",
            "model,collection,measure,value\nm,c,P_10,0.120\n",
            [("m", "c", "", "precision@10", 0.12, 3)],
        ),
    ],
)
def test_what_people_publish_is_read(tmp_path: Path, name: str, text: str, expected: list[Any]) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_published(tmp_path / name)
    assert [
        (each.model, each.collection, each.split, each.measure, each.score.value, each.score.digits)
        for each in found
    ] == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.json", "{}"),
        ("x.json", "[1"),
        ("x.yaml", "a: [}"),
        ("x.yaml", "conditions: 3"),
        ("x.md", "no metadata"),
        ("x.csv", "model,measure\n"),
        ("x.csv", "model,collection,measure,value\nm,c,ndcg@10,high\n"),
        ("x.pdf", "0.5"),
    ],
)
def test_files_without_scores_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=f"{name}"):
        read_published(tmp_path / name)


def config_of(folder: Path, expected: list[dict[str, object]], **data: object) -> dict[str, Any]:
    """The sample with BM25, whose recall@100 is near 1 and below it."""
    return {
        "name": "sample",
        "data": {"source": "sample", **data},
        "model": {"backend": "bm25"},
        "search": {"top_k": 100},
        "evaluate": {"measures": ["ndcg@10"]},
        "expected": expected,
        "cache": str(folder / "indexes"),
        "output": str(folder / "results"),
    }


def test_a_run_shows_the_verdict_and_a_result_can_be_verified_again(tmp_path: Path) -> None:
    plain = run_benchmark(config_of(tmp_path, []))
    ndcg = plain.metrics["metrics"]["ndcg@10"]
    published = [
        {"measure": "ndcg@10", "value": round(ndcg, 4), "source": "a paper"},
        {"measure": "success@1", "value": 2.0},
        {"measure": "recall@1000", "value": 0.5},
    ]
    result = run_benchmark(config_of(tmp_path, published))
    cells = {cell.measure: cell for cell in result.record.expected}
    assert {name: cell.verdict for name, cell in cells.items()} == {
        "ndcg@10": "reproduced",
        "success@1": "not reproduced",
        "recall@1000": "not comparable",
    }
    assert cells["ndcg@10"].tolerance == pytest.approx(0.001 + 0.00005)
    (table,) = result.tables()
    assert [column.name for column in table.columns][-2:] == ["published", "verdict"]
    assert any(
        note.startswith("recall@1000, published as 0.5: not comparable, cutoff") for note in table.notes
    )
    again = verify([result.folder])
    assert [(cell.measure, cell.verdict) for cell in again.cells] == [
        (name, cell.verdict) for name, cell in cells.items()
    ]


def test_tolerance_includes_half_a_unit_of_the_last_digit(tmp_path: Path) -> None:
    ndcg = run_benchmark(config_of(tmp_path, [])).metrics["metrics"]["ndcg@10"]
    given = [
        {"measure": "ndcg@10", "value": ndcg + 0.0059, "digits": 2},
        {"measure": "ndcg@10", "value": ndcg + 0.0061, "digits": 2},
        {"measure": "ndcg@10", "value": ndcg - 0.0061, "tolerance": 0.01, "digits": 4},
    ]
    cells = run_benchmark(config_of(tmp_path, given)).record.expected
    assert [cell.verdict for cell in cells] == ["reproduced", "not reproduced", "reproduced"]


def test_a_slice_is_not_comparable(tmp_path: Path) -> None:
    given = [{"measure": "ndcg@10", "value": 0.5}]
    (cell,) = run_benchmark(config_of(tmp_path, given, queries=5)).record.expected
    assert (cell.verdict, cell.got is None) == ("not comparable", False)
    assert cell.reason == "measured on the first 5 queries only"


def test_the_command_verifies_a_trec_run(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("1 Q0 a 1 2.0 x\n1 Q0 b 2 1.0 x\n", encoding="utf-8")
    (tmp_path / "qrels.trec").write_text("1 0 b 1\n", encoding="utf-8")
    csv = tmp_path / "scores.csv"
    files = ["--run", tmp_path / "run.trec", "--qrels", tmp_path / "qrels.trec", "--expected", csv]
    verdicts = {}
    for lines in ("m,c,mrr@2,0.5", "m,c,mrr@2,0.7", "m,c,mrr,0.5"):
        csv.write_text(f"model,collection,measure,value\n{lines}\n", encoding="utf-8")
        done = CliRunner().invoke(app, ["verify", *map(str, files), "--json"])
        document = json.loads(done.stdout)
        verdicts[lines] = done.exit_code, document["verdict"], document["cells"][0]["verdict"]
    assert verdicts == {
        "m,c,mrr@2,0.5": (0, "reproduced", "reproduced"),
        "m,c,mrr@2,0.7": (3, "not reproduced", "not reproduced"),
        "m,c,mrr,0.5": (4, "not comparable", "not comparable"),
    }


def test_nothing_to_verify_is_refused(tmp_path: Path) -> None:
    folder = run_benchmark(config_of(tmp_path, [])).folder
    with pytest.raises(InputError, match="no published score"):
        verify([folder])


CACM = Path(__file__).resolve().parents[3] / "shared" / "data" / "cacm"


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000 + "]" * 200_000, encoding="utf-8")
    (tmp_path / "deep.yaml").write_text("[" * 20_000, encoding="utf-8")
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("deep.json", "deep.yaml", "pipe.json", "none.json"):
        with pytest.raises(InputError, match=name):
            read_published(tmp_path / name)


@pytest.mark.skipif(not CACM.is_dir(), reason="needs ../shared/data/cacm")
def test_a_published_figure_of_anserini(tmp_path: Path) -> None:
    csv = tmp_path / "cacm.csv"
    csv.write_text("model,collection,measure,value\nbm25,cacm,P@30,0.1942\n", encoding="utf-8")
    run = CACM / "runs" / "anserini-bm25-top30.trec.gz"
    made = verify(run=run, qrels=CACM / "qrels" / "as-published.tsv", expected=[csv])
    assert made.verdict == "reproduced"
    made = verify(run=run, qrels=CACM / "qrels" / "test.tsv", expected=[csv], why=True)
    assert made.verdict == "not reproduced"
    (cell,) = made.cells
    assert cell.why
    assert cell.why[0].change.startswith("ids of judgments without leading zeros")
    assert abs(cell.why[0].difference) < 0.00005


def published(folder: Path, means: dict[str, float]) -> Path:
    path = folder / "published.csv"
    lines = [f"bm25,sample,{name},{value:.5f}" for name, value in means.items()]
    path.write_text("\n".join(["model,collection,measure,value", *lines]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("planted", "first"),
    [
        ({"model": {"backend": "bm25", "k1": 1.5, "b": 0.75}}, "k1 1.5, b 0.75"),
        ({"model": {"backend": "bm25", "stemmer": None}}, "model.stemmer null"),
        ({"model": {"backend": "bm25", "stop_words": None}}, "model.stop_words null"),
        ({"evaluate": {"measures": ["ndcg(gain=exp)@10", "map@10"]}}, "gain 2^grade - 1"),
        ({"evaluate": {"measures": ["ndcg@10", "map(norm=retrieved)@10"]}}, "average precision over"),
    ],
)
def test_a_planted_cause_is_named_first(tmp_path: Path, planted: dict[str, Any], first: str) -> None:
    base = config_of(tmp_path, []) | {"evaluate": {"measures": ["ndcg@10", "map@10"]}}
    theirs = run_benchmark(base | planted | {"name": "theirs"}).metrics["metrics"]
    mine = tmp_path / "mine.yaml"
    mine.write_text(json.dumps(base), encoding="utf-8")
    means = {re.sub(r"\(.*\)", "", name): value for name, value in theirs.items()}
    made = verify([mine], expected=[published(tmp_path, means)], why=True, minutes=60)
    cells = [cell for cell in made.cells if cell.verdict == "not reproduced"]
    assert cells
    for cell in cells:
        assert cell.why
        assert cell.why[0].change.startswith(first)
        assert abs(cell.why[0].difference) <= cell.tolerance


@pytest.fixture
def suite(tmp_path: Path) -> dict[str, Any]:
    """BM25 on two collections: the sample, and four passages; each with a published score."""
    place = tmp_path / "small"
    (place / "qrels").mkdir(parents=True)
    texts = {"a": "a red apple", "b": "a green apple tree", "c": "the red car", "d": "a boat"}
    passages = [{"_id": name, "title": "", "text": text} for name, text in texts.items()]
    queries = [{"_id": "1", "text": "red apple"}, {"_id": "2", "text": "car"}]
    for name, rows in (("corpus", passages), ("queries", queries)):
        (place / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (place / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tb\t1\n2\tc\t1\n", "utf-8")
    beir = {"source": "beir", "path": str(place), "split": "test"}
    collections = {
        "small": {"data": beir, "expected": [{"measure": "success@1", "value": 1.0}]},
        "sample": {"data": {"source": "sample"}, "expected": [{"measure": "ndcg@10", "value": 0.9}]},
    }
    (tmp_path / "two.yaml").write_text(json.dumps({"collections": collections}), encoding="utf-8")
    data = {"source": "suite", "suite": str(tmp_path / "two.yaml")}
    return config_of(tmp_path, []) | {"name": "two", "data": data}


def test_each_collection_of_a_suite_has_its_published_scores(
    tmp_path: Path, suite: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = run_benchmark(suite)
    expected = [("small", "success@1", "not reproduced"), ("sample", "ndcg@10", "not reproduced")]
    _, scores = made.tables()
    names = [column.name for column in scores.columns]
    parts = [names.index(name) for name in ("collection", "measure", "verdict")]
    assert [tuple(row[part] for part in parts) for row in scores.rows] == expected

    config = tmp_path / "suite.yaml"
    config.write_text(json.dumps(suite), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        tried = [verify([target], why=True, minutes=60) for target in (made.folder, config)]
    assert "had other settings" not in caplog.text  # of trials
    for found in tried:
        assert [(each.collection, each.measure, each.verdict) for each in found.cells] == expected
        for cell in found.cells:
            assert cell.why
        assert any("k1 1.2" in each.change for each in found.cells[1].why or ())


def test_scores_of_one_collection_are_not_taken_for_those_of_a_suite_s_others(
    tmp_path: Path, suite: dict[str, Any]
) -> None:
    path = Path(suite["data"]["suite"])
    listed = json.loads(path.read_text(encoding="utf-8"))
    for each in listed["collections"].values():
        each.pop("expected")
    path.write_text(json.dumps(listed), encoding="utf-8")
    config = tmp_path / "suite.yaml"
    config.write_text(json.dumps(suite), encoding="utf-8")
    expected = [published(tmp_path, {"ndcg@10": 0.5})]
    for target in (config, run_benchmark(suite).folder):
        (cell,) = verify([target], expected=expected).cells  # the folder has the score from the first time
        assert cell.collection == "sample"
    expected[0].write_text("model,collection,measure,value\nbm25,other,ndcg@10,0.5\n", encoding="utf-8")
    with pytest.raises(InputError, match="no published score"):
        verify([config], expected=expected)


def test_only_settings_that_are_needed_and_safe_are_run(tmp_path: Path) -> None:
    folder = run_benchmark(config_of(tmp_path, [{"measure": "ndcg@10", "value": 0.5}])).folder
    with pytest.raises(InputError, match="nothing is run"):
        verify([folder], overrides=["search.top_k=50"])
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["config"]["engine"] = {"kind": "ray", "address": "elsewhere:6379"}
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert verify([folder]).verdict == "not reproduced"  # runs nothing
    with pytest.raises(InputError, match="send data and code to the cluster elsewhere:6379"):
        verify([folder], why=True)
    (cell,) = verify([folder], why=True, overrides=["engine={kind: local}"]).cells
    assert cell.why


def test_repeated_passages_are_named(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "qrels").mkdir(parents=True)
    texts = {"a": "a red apple", "b": "an apple tree", "c": "a red car", "d": "a boat"}
    lines = [json.dumps({"_id": name, "text": text}) for name, text in texts.items()]
    (theirs / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    queries = [{"_id": "1", "text": "apple tree"}, {"_id": "2", "text": "red car"}]
    (theirs / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    (theirs / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\ta\t1\n", "utf-8")
    mine = tmp_path / "mine"
    shutil.copytree(theirs, mine)
    lines += [json.dumps({"_id": f"{name}-again", "text": text}) for name, text in texts.items()]
    (mine / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    data = {"source": "beir", "path": str(theirs), "split": "test"}
    value = run_benchmark(config_of(tmp_path, []) | {"data": data, "name": "theirs"}).metrics["metrics"]
    expected = [{"measure": "ndcg@10", "value": value["ndcg@10"]}]
    folder = run_benchmark(config_of(tmp_path, expected) | {"data": data | {"path": str(mine)}}).folder
    (cell,) = verify([folder], why=True).cells
    assert cell.verdict == "not reproduced"
    assert cell.why
    assert cell.why[0].change == "passages with an earlier one's text removed"


def test_titles_are_left_out_of_passages_without_a_text_too(tmp_path: Path) -> None:
    place = tmp_path / "titles"
    (place / "qrels").mkdir(parents=True)
    passages = [
        ("a", "red apple", ""),
        ("b", "", "an apple and a pear"),
        ("c", "", "the red car of a friend"),
    ]
    lines = [json.dumps({"_id": name, "title": title, "text": text}) for name, title, text in passages]
    (place / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    queries = [{"_id": "1", "text": "red apple"}, {"_id": "2", "text": "a friend's car"}]
    (place / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    (place / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tc\t1\n", "utf-8")
    data = {"source": "beir", "path": str(place), "split": "test"}
    expected = [{"measure": "success@1", "value": 0.5, "digits": 4}]
    folder = run_benchmark(config_of(tmp_path, expected) | {"data": data}).folder
    (cell,) = verify([folder], why=True, minutes=60).cells
    assert cell.why
    assert cell.why[0].change == "data.title_separator null"
    assert cell.why[0].got == 0.5


def test_minutes_are_those_of_all_targets(
    tmp_path: Path, suite: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now, trials = 0.0, 0

        def monotonic(self) -> float:
            return self.now

    clock, run_each = Clock(), causes.run_each

    def an_hour(*arguments: Any) -> Any:
        clock.now += 3600
        clock.trials += 1
        return run_each(*arguments)

    monkeypatch.setattr(causes, "run_each", an_hour)
    for module in (causes, verification):
        monkeypatch.setattr(module, "time", clock, raising=False)
    found = verify([run_benchmark(suite).folder], why=True, minutes=10)
    assert clock.trials == 1  # of the first collection; the second has the evaluation alone
    assert all(cell.why for cell in found.cells)
    for cell in found.cells:  # all that can be tried of BM25, in order
        assert cell.not_tried[0] == "k1 1.2, b 0.75"
        assert cell.not_tried[-1] == "data.title_separator null"
    notes = [note for table in found.tables()[1:] for note in table.notes]
    assert sum(note.startswith("Not tried for lack of time: k1 1.2, b 0.75, ") for note in notes) == 2


def test_several_scores_of_one_measure_are_each_explained(tmp_path: Path) -> None:
    base = config_of(tmp_path, [])
    sources = {"one": {"k1": 1.5, "b": 0.75}, "two": {"stemmer": None}}
    given = []
    for source, settings in sources.items():
        theirs = base | {"name": source, "model": {"backend": "bm25", **settings}}
        value = run_benchmark(theirs).metrics["metrics"]["ndcg@10"]
        given.append({"measure": "ndcg@10", "value": value, "source": source, "tolerance": 0.0001})
    folder = run_benchmark(config_of(tmp_path, given)).folder
    found = verify([folder], why=True, minutes=60)
    first = {cell.source: cell.why[0] for cell in found.cells if cell.why}
    assert {source: each.change for source, each in first.items()} == {
        "one": "k1 1.5, b 0.75",
        "two": "model.stemmer null",
    }
    assert all(abs(each.difference) < 0.0001 for each in first.values())


def test_tables_of_verdicts_as_markdown_and_as_pages(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("1 Q0 a 1 2.0 x\n1 Q0 a-7 2 1.0 x\n", encoding="utf-8")
    (tmp_path / "qrels.trec").write_text("1 0 a-7 1\n", encoding="utf-8")
    csv, page = tmp_path / "scores.csv", tmp_path / "page.html"
    csv.write_text(
        "model,collection,measure,value,source\n<m>,c,mrr@2,0.9,a|b\n<m>,c,recall@1,0,\n", encoding="utf-8"
    )
    files = ["--run", tmp_path / "run.trec", "--qrels", tmp_path / "qrels.trec", "--expected", csv]
    arguments = ["verify", *map(str, files), "--why", "--markdown", "--html", str(page)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 3
    lines = done.stdout.splitlines()
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
    given = ["--expected", csv, "--run", tmp_path / "run.trec", "--qrels", tmp_path / "qrels.trec"]
    again = ["verify", *map(str, given), "--why"]
    command = shlex.join(["benchmarco", *again])
    plain = [line.replace("\\", "") for line in lines]
    assert any(line.endswith(f", benchmarco {version('benchmarco')}: {command}") for line in plain)
    document = json.loads(CliRunner().invoke(app, [*again, "--json"]).stdout)
    assert (document["command"], document["version"]) == (command, version("benchmarco"))
    html = page.read_text(encoding="utf-8")
    assert html.count("<table>") == html.count("</table>") == 2
    assert "&lt;m&gt;" in html
    assert "<m>" not in html


def test_reports_have_a_table_of_published_scores(tmp_path: Path, suite: dict[str, Any]) -> None:
    given = [{"measure": "ndcg@10", "value": 0.9, "source": "a <paper>"}]
    one = run_benchmark(config_of(tmp_path, given)).folder
    two = run_benchmark(suite).folder
    pages = {name: render_page(compare([each])) for name, each in (("one", one), ("two", two))}
    for page in pages.values():
        assert page.count('<section id="published">') == 1
        assert "not reproduced" in page
    assert "a &lt;paper&gt;" in pages["one"]
    plain = run_benchmark(config_of(tmp_path, []) | {"name": "plain"}).folder
    assert 'id="published"' not in render_page(compare([plain]))
