"""Passages that queries exclude, in folders and tables; and what was read in part or by mistake."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workplaces import benchmarco, hits, on_one_line

from pipeline import InputError, run_benchmark

CORPUS = {f"p{number}": f"word number {number}" for number in range(6)}


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def folder_of(path: Path, queries: list[dict[str, Any]], layout: str = "beir") -> dict[str, Any]:
    """A collection whose queries have further fields; returns its section `data`."""
    path.mkdir()
    if layout == "beir":
        rows = [{"_id": name, "text": text} for name, text in CORPUS.items()]
        (path / "corpus.jsonl").write_text(lines(rows), encoding="utf-8")
        (path / "queries.jsonl").write_text(
            lines([{"_id": q.pop("id"), **q} for q in queries]), encoding="utf-8"
        )
        (path / "qrels").mkdir()
        judged = "query-id\tcorpus-id\tscore\nq0\tp3\t1\nq1\tp4\t1\n"
        (path / "qrels/test.tsv").write_text(judged, encoding="utf-8")
        return {"source": "beir", "path": str(path)}
    passages = "".join(f"{name},{text}\n" for name, text in CORPUS.items())
    (path / "passages.csv").write_text("id,text\n" + passages, encoding="utf-8")
    asked = "".join(f"{q['id']},{q['text']},{' '.join(q.get('excluded_ids', []))}\n" for q in queries)
    (path / "queries.csv").write_text("id,text,excluded_ids\n" + asked, encoding="utf-8")
    (path / "qrels.csv").write_text("query_id,passage_id,grade\nq0,p3,1\nq1,p4,1\n", encoding="utf-8")
    names = {"corpus_file": "passages", "queries_file": "queries", "judgments_file": "qrels"}
    files = {setting: str(path / f"{name}.csv") for setting, name in names.items()}
    columns = {"corpus_id": "id", "query_id": "id", "corpus_text": "text", "query_text": "text"}
    return {"source": "table", **files, **columns}


@pytest.mark.parametrize("layout", ["beir", "table"])
def test_passages_that_a_query_excludes_are_left_out_of_its_ranking(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    queries = [
        {"id": "q0", "text": "word", "excluded_ids": ["p0", "p1", "p2", "p5"]},
        {"id": "q1", "text": "number", "excluded_ids": []},
        {"id": "q2", "text": "word"},
    ]
    data = folder_of(tmp_path / "mine", queries, layout)
    config = {
        "name": "t", "data": data, "model": {"backend": "bm25"}, "search": {"top_k": 2},
        "evaluate": {"measures": ["recall@2"]},
    }  # fmt: skip
    with pytest.raises(InputError, match=r"have excluded_ids, and data.ignored is none.*negative_grades"):
        run_benchmark(config)
    if layout == "beir":
        file = tmp_path / "mine/queries.jsonl"
        file.write_text(file.read_text(encoding="utf-8").replace("excluded_", r"\u0065xcluded\u005F"))
        with pytest.raises(InputError, match="have excluded_ids"):
            run_benchmark(config)
    result = run_benchmark({**config, "data": data | {"ignored": "negative_grades"}})
    found = {query: [p for q, p, _ in hits(result.folder) if q == query] for query in ("q0", "q1")}
    assert found == {"q0": ["p4", "p3"], "q1": ["p5", "p4"]}
    assert result.metrics["recall@2"] == 1


def test_what_was_read_in_part_or_by_mistake_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    queries = [{"id": "q0", "text": "word"}, {"id": "q1", "text": "number"}]
    config = {"name": "t", "model": {"backend": "bm25"}, "evaluate": {"measures": ["recall@2"]}}
    data = folder_of(tmp_path / "shards", [dict(query) for query in queries])
    for name in ("corpus-00001.jsonl", "corpus_1.jsonl.gz"):
        (tmp_path / "shards" / name).write_text(lines([{"_id": "z", "text": "z"}]), encoding="utf-8")
        with pytest.raises(InputError, match=rf"corpus.jsonl and {name}, of which only the first"):
            run_benchmark({**config, "data": data})
        (tmp_path / "shards" / name).unlink()
    table = folder_of(tmp_path / "table", queries, "table")
    for name in ("split", "Split"):
        judged = f"query_id,passage_id,grade,{name}\nq0,p3,1,train\nq1,p4,1,test\n"
        (tmp_path / "table/qrels.csv").write_text(judged, encoding="utf-8")
        with pytest.raises(InputError, match=r"its column 'split' has test, train, and all rows would count"):
            run_benchmark({**config, "data": table})
    (tmp_path / "table/passages.csv").write_text("id,text,text\np3,a,b\np4,c,d\n", encoding="utf-8")
    (tmp_path / "table/qrels.csv").write_text("query_id,passage_id,grade\nq0,p3,1\n", encoding="utf-8")
    with pytest.raises(InputError, match="2 columns are named 'text'"):
        run_benchmark({**config, "data": table})
    marco = tmp_path / "marco"
    marco.mkdir()
    (marco / "queries.dev.tsv").write_text("q0\tword\n", encoding="utf-8")
    (marco / "qrels.dev.tsv").write_text("q0\t0\tp3\t1\n", encoding="utf-8")
    for name in ("pid", "docno"):
        (marco / "collection.tsv").write_text(f"{name}\ttext\np3\tword\n", encoding="utf-8")
        with pytest.raises(InputError, match=rf"collection.tsv, line 1: '{name} text' looks like a header"):
            run_benchmark({**config, "data": {"source": "msmarco", "path": str(marco), "split": "dev"}})


def test_judgments_that_are_shifted_by_a_line_are_likened_to_a_random_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = folder_of(tmp_path / "mine", [{"id": f"q{number}", "text": f"w{number}"} for number in range(200)])
    rows = [{"_id": f"p{number}", "text": f"w{number} other"} for number in range(200)]
    (tmp_path / "mine/corpus.jsonl").write_text(lines(rows), encoding="utf-8")
    for shift, name in ((0, "right"), (7, "shifted")):
        judged = "".join(f"q{number}\tp{(number + shift) % 200}\t1\n" for number in range(200))
        (tmp_path / "mine/qrels/test.tsv").write_text(
            "query-id\tcorpus-id\tscore\n" + judged, encoding="utf-8"
        )
        config = {"name": name, "data": data, "model": {"backend": "bm25"}}
        config |= {"evaluate": {"measures": ["ndcg@10"]}}
        run_benchmark(config)
        said = on_one_line(benchmarco("compare", f"results/{name}", f"results/{name}"))
        assert ("those of a random order" in said) == (shift != 0)


def test_a_search_log_and_products_are_a_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """query,sku,weight is what a shop has: its queries have no ids."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    products = "sku,name,description\ns1,Kettle,boils water\ns2,Lamp,gives light\ns3,Mug,holds water\n"
    (tmp_path / "shop/products.csv").write_text(products, encoding="utf-8")
    log = "query,sku,weight\nboil water,s1,3\nreading light,s2,1\nboil water,s3,1\n"
    (tmp_path / "shop/log.csv").write_text(log, encoding="utf-8")
    command = ("run", "--model", "bm25", "--data", "shop", "--set", "evaluate.measures=[ndcg@3, recall@3]")
    assert "2 queries, 3 passages" in on_one_line(benchmarco(*command))
    assert "weight as grade), whose distinct queries are numbered, as they have no ids" in caplog.text
    (folder,) = (tmp_path / "results").iterdir()
    found = {query: [p for q, p, _ in hits(folder) if q == query] for query in ("q1", "q2")}
    assert found["q1"][0] == "s1"
    assert found["q2"] == ["s2"]


def test_rows_of_a_search_log_add_up_and_weights_below_1_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log has a row for each click or day; the second row of a pair was refused as a contradiction."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    products = "sku,name\ns1,water kettle\ns2,lamp\ns3,water mug\n"
    (tmp_path / "shop/products.csv").write_text(products, encoding="utf-8")
    log = "query,sku,weight\nwater,s3,0.5\nwater,s1,0.25\nlamp,s2,1\nwater,s3,0.75\nwater,s1,0.25\n"
    (tmp_path / "shop/log.csv").write_text(log, encoding="utf-8")
    measures = "evaluate.measures=[recall@3, recall(rel=0.5)@3, dcg@3]"
    said = on_one_line(benchmarco("run", "--model", "bm25", "--data", "shop", "--set", measures))
    assert "1 judgment has a grade between 0 and 1: not relevant but for" in said
    (folder,) = (tmp_path / "results").iterdir()
    graded = {"s1": 0.5, "s3": 1.25}
    ranked = [graded[passage] for query, passage, _ in hits(folder) if query == "q1"]
    with open(folder / "per_query.csv", newline="", encoding="utf-8") as file:
        values = {row["query_id"]: row for row in csv.DictReader(file)}["q1"]
    assert values["recall@3"] == values["recall(rel=0.5)@3"] == "1.0"
    assert float(values["dcg@3"]) == pytest.approx(ranked[0] + ranked[1] / np.log2(3), abs=1e-12)
