"""Judgments of passages that the corpus lacks: counted as trec_eval counts them, or dropped."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from workplaces import benchmarco

from pipeline import InputError, api, compare, evaluate, load_config
from pipeline.results import Result
from pipeline.studies.collection import describe_data
from pipeline.studies.page import read_query_data
from pipeline.studies.reproduce import reproduce

MEASURES = {
    "recall@5": "recall_5", "map": "map", "ndcg@5": "ndcg_cut_5", "r_precision": "Rprec", "mrr": "recip_rank",
    "precision@5": "P_5",
}  # fmt: skip
WORDS = ("cat", "dog", "owl", "fox", "bee", "ant")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a config of 30 passages and 6 queries; half of the judged passages are missing, of one all."""
    draw = np.random.default_rng(3)
    texts = [" ".join(draw.choice(WORDS, 4)) for _ in range(30)]
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    corpus = [json.dumps({"_id": f"d{row}", "text": text}) for row, text in enumerate(texts)]
    (data / "corpus.jsonl").write_text("\n".join(corpus), encoding="utf-8")
    queries = [json.dumps({"_id": f"q{row}", "text": word}) for row, word in enumerate(WORDS)]
    (data / "queries.jsonl").write_text("\n".join(queries), encoding="utf-8")
    judged = [
        (query, d, draw.integers(0, 4)) for query in range(5) for d in draw.choice(60, 20, replace=False)
    ]
    judged += [(5, 77, 1), (5, 78, 2)]
    lines = [f"q{query} 0 d{passage} {grade}\n" for query, passage, grade in judged]
    (data / "qrels/test.tsv").write_text("".join(lines), encoding="utf-8")
    text = "name: t\ndata: {source: beir, path: data}\nmodel: {backend: bm25}\n"
    text += f"evaluate: {{measures: [{', '.join(MEASURES)}]}}\n"
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    return lambda *settings: api.run_benchmark(load_config("c.yaml", settings))


def per_query(folder: Path) -> dict[str, dict[str, float]]:
    with open(folder / "per_query.csv", encoding="utf-8", newline="") as file:
        rows = {row.pop("query_id"): row for row in csv.DictReader(file)}
    return {query: {name: float(value) for name, value in row.items()} for query, row in rows.items()}


def test_a_run_has_the_measures_of_trec_eval_and_of_evaluate(run: Callable[..., Result]) -> None:
    result = run()
    scored = evaluate("data/qrels/test.tsv", result.folder / "run.trec", list(MEASURES))
    assert result.record.metrics == pytest.approx(scored.mean_by_measure, abs=1e-15)
    with open("data/qrels/test.tsv") as judged, open(result.folder / "run.trec") as ranked:
        qrels, ranking = pytrec_eval.parse_qrel(judged), pytrec_eval.parse_run(ranked)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, set(MEASURES.values())).evaluate(ranking)
    ours = per_query(result.folder)
    assert ours.keys() == theirs.keys() == set(qrels)
    for query, values in ours.items():
        assert values == pytest.approx(
            {name: theirs[query][other] for name, other in MEASURES.items()}, abs=1e-9
        )


def test_what_is_missing_is_said_everywhere(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run()
    missing = result.record.missing
    assert missing is not None
    assert missing.judgments >= 40
    assert (missing.handling, missing.queries) == ("count", 0)
    said = f"{missing.judgments} judgments of {missing.passages} passages that the corpus lacks are counted"
    assert said in str(result)
    compared = compare([result.folder])
    assert [note.startswith(said) for note in compared.notes] == [True]
    described: Any = describe_data([load_config("c.yaml")])["t"]
    assert described["missing"] == missing.model_dump()
    page = read_query_data(compared)  # which recomputes measures of the cached judgments
    assert page.details[0] is not None
    assert page.details[0].curves["ndcg"][3] == pytest.approx(result.record.metrics["ndcg@5"], abs=1e-12)
    assert "d77" in page.passages  # a relevant passage that was not found


def test_dropped_is_what_the_corpus_lacks_and_nothing_is_encoded_again(
    run: Callable[..., Result],
) -> None:
    counted = run()
    dropped = run("data.missing_passages=drop", "name=u")
    assert [row.stage for row in dropped.record.stages if not row.reused] == ["data", "evaluate"]
    assert (counted.record.queries, dropped.record.queries) == (6, 5)
    assert "q5" not in per_query(dropped.folder)
    assert dropped.record.metrics["recall@5"] > counted.record.metrics["recall@5"]
    lines = Path("data/qrels/test.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("known.trec").write_text(
        "".join(line for line in lines if int(line.split()[2][1:]) < 30), encoding="utf-8"
    )
    scored = evaluate("known.trec", dropped.folder / "run.trec", list(MEASURES))
    assert dropped.record.metrics == pytest.approx(scored.mean_by_measure, abs=1e-15)
    page = read_query_data(compare([dropped.folder]))
    assert page.details[0] is not None
    assert page.details[0].curves["ndcg"][3] == pytest.approx(dropped.record.metrics["ndcg@5"], abs=1e-12)
    with pytest.raises(InputError, match="scored on different queries"):
        compare([counted.folder, dropped.folder])


def test_what_only_judgments_or_only_queries_have_is_left_out_and_said(
    run: Callable[..., Result],
) -> None:
    lines = Path("data/qrels/test.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    kept_lines = [line for line in lines if line.split()[0] != "q2"]
    textless = "q9 0 d1 1\nq9 0 d2 1\nq8 0 d2 0\n"
    Path("data/qrels/test.tsv").write_text("".join(kept_lines) + textless, encoding="utf-8")
    dropped = run()
    assert (dropped.record.queries, dropped.record.unjudged_queries) == (5, 1)
    assert "2 judged queries without a text are left out; trec_eval -c gives them a 0" in str(dropped)
    kept = run("name=kept", "data.unjudged_queries=keep")
    assert (kept.record.queries, kept.record.unjudged_queries) == (5, 1)
    assert kept.record.metrics == dropped.record.metrics
    assert per_query(kept.folder) == per_query(dropped.folder)
    searched = {line.split()[0] for line in (kept.folder / "run.trec").read_text().splitlines()}
    assert searched == {"q0", "q1", "q2", "q3", "q4", "q5"}
    assert compare([dropped.folder, kept.folder]).pairs[0].difference == 0
    assert reproduce(kept.folder)[0].unchanged


def test_a_collection_without_judgments_is_searched_and_not_scored(
    run: Callable[..., Result],
) -> None:
    shutil.rmtree("data/qrels")
    with pytest.raises(InputError, match=r"no file qrels/test.tsv .*data.unjudged_queries: keep"):
        run()
    result = run("data.unjudged_queries=keep")
    assert (result.record.metrics, result.record.queries, result.record.unjudged_queries) == ({}, 0, 6)
    said = "t: 6 queries, 30 passages\n6 queries without judgments: nothing is scored.\n"
    assert str(result).startswith(said)
    done = benchmarco("run", "c.yaml", "--set", "data.unjudged_queries=keep")
    assert done.stdout.startswith(said)
    with pytest.raises(InputError, match=r"nothing is judged in the collection of t.*docs/judge.md"):
        compare([result.folder])
    np.save("p.npy", np.eye(30, 8, dtype=np.float32) + 0.1)
    np.save("q.npy", np.eye(6, 8, dtype=np.float32))
    vectors = {"backend": "precomputed", "passages": "p.npy", "queries": "q.npy", "normalize": False}
    shared = {
        "data": {"source": "beir", "path": "data", "unjudged_queries": "keep"},
        "evaluate": {"measures": list(MEASURES)},
    }

    def run_of(name: str, **sections: Any) -> Any:
        return api.run_benchmark({"name": name, **shared, **sections})

    approximate = run_of("ivf", model=vectors, index={"factory": "IVF2,Flat"})
    assert approximate.document["against_exact"]["change"] == {}
    assert approximate.document["against_exact"]["overlap"]
    fused = {"method": "weighted", "of": [{"model": {"backend": "bm25"}}, {"model": vectors}]}
    parts = run_of("f", fuse=fused | {"weights": [1, 1]}).document["of"]
    assert [each["metrics"] for each in parts] == [{}, {}]
    collections = {"x": shared["data"], "judged": {"source": "sample", "queries": 3}}
    result = run_of("s", model={"backend": "bm25"}, data={"collections": collections})
    assert "No macro mean: nothing is judged in x." in " ".join(str(result).split())
