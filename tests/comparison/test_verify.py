"""Published scores: the forms they are read in, and the verdicts of `verify`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.api import run_benchmark, verify
from pipeline.cli import app
from pipeline.core.errors import InputError
from pipeline.results.published import read_published

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


@pytest.mark.skipif(not CACM.is_dir(), reason="needs ../shared/data/cacm")
def test_hostile_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000 + "]" * 200_000, encoding="utf-8")
    (tmp_path / "deep.yaml").write_text("[" * 20_000, encoding="utf-8")
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("deep.json", "deep.yaml", "pipe.json", "none.json"):
        with pytest.raises(InputError, match=name):
            read_published(tmp_path / name)


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
    made = verify([mine], expected=[published(tmp_path, means)], why=True, minutes=2)
    cells = [cell for cell in made.cells if cell.verdict == "not reproduced"]
    assert cells
    for cell in cells:
        assert cell.why
        assert cell.why[0].change.startswith(first)
        assert abs(cell.why[0].difference) <= cell.tolerance
