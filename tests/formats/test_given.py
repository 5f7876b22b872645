"""Judgments, runs and texts as dictionaries and DataFrames: the same numbers as from files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import pytrec_eval

import pipeline
from pipeline import InputError, compare, evaluate, run_benchmark, write_collection

QRELS = {"q1": {"a": 2, "b": 0, "c": 1}, "q2": {"b": 1}, "q3": {"a": 1}}
RUN = {"q1": {"b": 0.9, "a": 0.5, "x": 0.5}, "q2": {"a": 1.0, "b": 2.0}, "q9": {"a": 1.0}}
MEASURES = ["ndcg@10", "map", "mrr"]


def frame(values: dict[str, dict[str, Any]], *names: str) -> pd.DataFrame:
    rows = [(query, name, value) for query, own in values.items() for name, value in own.items()]
    return pd.DataFrame(rows, columns=list(names))


def test_tables_may_have_any_columns_that_are_named() -> None:
    qrels, run = frame(QRELS, "search", "sku", "weight"), frame(RUN, "search", "sku", "similarity")
    columns = {"query": "search", "passage": "sku", "grade": "weight", "score": "similarity"}
    found = evaluate(qrels, run, MEASURES, columns=columns)
    assert np.array_equal(found.values, evaluate(QRELS, RUN, MEASURES).values)
    for wrong in ({"grade": "wieght"}, {"grades": "weight"}):
        with pytest.raises(InputError, match=r"columns: grades? is"):
            evaluate(qrels, run, MEASURES, columns=columns | wrong)


def test_dictionaries_give_trec_eval_s_values_and_so_do_tables_and_files(tmp_path: Path) -> None:
    found = evaluate(QRELS, RUN, MEASURES)
    names = ["ndcg_cut.10", "map", "recip_rank"]
    theirs = pytrec_eval.RelevanceEvaluator(QRELS, names).evaluate(RUN)
    assert found.query_ids == ["q1", "q2", "q3"]
    assert (found.missing, found.unjudged) == (1, 1)
    for row, query in enumerate(["q1", "q2"]):
        assert found.values[row] == pytest.approx([theirs[query][name.replace(".", "_")] for name in names])
    lines = [f"{query} 0 {name} {grade}\n" for query, name, grade in frame(QRELS, *"qdg").to_numpy()]
    (tmp_path / "qrels").write_text("".join(lines), encoding="utf-8")
    assert evaluate(tmp_path / "qrels", RUN, MEASURES).json() == found.json()
    for judged, ranked in (
        ("query_id passage_id grade", "query_id passage_id score"),
        ("qid docno label", "qid docno score"),
        ("query_id doc_id relevance", "q_id doc_id score"),
    ):
        tables = frame(QRELS, *judged.split()), frame(RUN, *ranked.split())
        assert evaluate(*tables, MEASURES).json() == found.json()
    values = found.to_dataframe()
    assert values.loc["q2", "mrr"] == 1.0
    assert values.index.name == "query_id"
    assert values.columns.tolist() == MEASURES


NONE = float("nan")
WRONG: dict[str, tuple[Any, Any, str]] = {
    "a list": ([("q1", "a", 1)], RUN, "qrels is .*a file, {query: {document: number}}"),
    "no column": (frame(QRELS, "qid", "document", "rel"), RUN, "qrels: no column 'passage_id' or .*it has"),
    "a text": (QRELS, {"q1": {"a": "high"}}, "run: could not convert"),
    "no number": (QRELS, {"q1": {"a": NONE}}, "run: a score is not a number"),
    "an infinite grade": ({"q1": {"a": 1e400}}, RUN, "qrels, row 0: the grade is inf"),
    "nothing": (QRELS, {}, "run: has no line"),
    "other queries": (QRELS, {"z": {"a": 1.0}}, "no query of the run is judged in the judgments"),
    "twice": (QRELS, pd.concat([frame(RUN, "qid", "docno", "score")] * 2), "document 'b' twice for query"),
    "equal as texts": (QRELS, {"q1": {1: 0.9, "1": 0.8}}, "document '1' twice for query 'q1'.*as texts"),
    "None": ({"q1": {None: 1}}, {"q1": {None: 1.0}}, "qrels: a document's id is None, of type NoneType"),
    "NaN": (QRELS, {"q1": {NONE: 1.0}}, "run: a document's id is nan, of type float"),
    "NaN twice": (
        QRELS,
        pd.DataFrame({"qid": ["q", "q"], "docno": [NONE, NONE], "score": [1, 0.5]}),
        "run: a document's id is nan",
    ),
    "NA": (QRELS, {"q1": {pd.NA: 1.0}}, "run: a document's id is <NA>"),
    "a missing query": (QRELS, {None: {"a": 1.0}}, "run: a query's id is None"),
    "floats of integers": (
        QRELS,
        pd.DataFrame({"qid": ["q"], "docno": [7.0], "score": [1]}),
        r"run: a document's id is 7\.0, of type float.*pandas makes floats",
    ),
    "bytes": (QRELS, {"q1": {b"d": 1.0}}, "run: a document's id is b'd', of type bytes"),
    "a truth value": (QRELS, {"q1": {True: 1.0}}, "run: a document's id is True, of type bool"),
    "half a surrogate pair": (QRELS, {"q1": {"\ud800": 1.0}}, "a document's id is .*valid Unicode"),
    "an invisible end": (QRELS, {"q1": {"a\u200b": 1.0}}, r"run, row 0: the passage's id is 'a\\u200b'"),
    "a space": (QRELS, {"q 1": {"a": 1.0}}, "run, row 0: the query's id is 'q 1'"),
    "too large a score": (QRELS, {"q1": {"a": 10**400}}, "run: int too large to convert to float"),
    "a list as score": (QRELS, {"q1": {"a": [1]}}, r"run: a value is \[1\]"),
    "two columns of one name": (
        QRELS,
        pd.DataFrame([["q1", "a", 1, 2]], columns=["qid", "docno", "score", "score"]),
        "run: two columns 'score'",
    ),
}  # fmt: skip
"""The rules for ids are those of files (haystack#11951, classifai#21)."""


def test_a_pyarrow_table_is_read() -> None:
    table = pa.table({"query_id": ["q1", "q1"], "doc_id": [1, 2], "score": [0.5, 0.7]})
    judged = pa.table({"qid": ["q1"], "docno": ["2"], "label": [1]})
    assert evaluate(judged, table, ["mrr"]).values.tolist() == [[1.0]]


def test_integers_and_texts_are_the_same_ids() -> None:
    run = pd.DataFrame({"qid": [7], "docno": np.array([3], np.int32), "score": [1.0]})
    assert evaluate({"7": {"3": 1}}, run, ["mrr"]).values.tolist() == [[1.0]]


@pytest.mark.parametrize(("qrels", "run", "message"), WRONG.values(), ids=list(WRONG))
def test_other_values_are_refused(qrels: Any, run: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(qrels, run)


PASSAGES = {
    "a": {"title": "Cats", "text": "the cat sat"}, "b": "a dog ran", "c": "the cat slept", "d": "rain",
}  # fmt: skip


@pytest.fixture
def ran(tmp_path: Path) -> Callable[..., pipeline.api.Result]:
    def run(data: dict[str, str], name: str = "t") -> pipeline.api.Result:
        return run_benchmark({
            "name": name, "data": data, "model": {"backend": "bm25"}, "evaluate": {"measures": MEASURES},
            "cache": str(tmp_path / "indexes"), "output": str(tmp_path / "results"),
        })  # fmt: skip

    return run


def test_a_collection_of_values_is_run_and_reused(tmp_path: Path, ran: Callable[..., Any]) -> None:
    queries = {"q1": "cat sat", "q2": "dog", "q3": "cats"}
    data = write_collection(tmp_path / "mine", PASSAGES, queries, QRELS)
    first = ran(data)
    assert first.document["queries"] == 3
    rows = [each if isinstance(each, dict) else {"title": "", "text": each} for each in PASSAGES.values()]
    table = pd.DataFrame(rows).assign(doc_id=list(PASSAGES))
    asked = pd.DataFrame(queries.items(), columns=["qid", "text"])
    judged = frame(QRELS, "qid", "docno", "label")
    again = ran(write_collection(tmp_path / "table", table, asked, judged), "u")
    assert {"data", "index", "search"} <= set(again.reused)
    assert write_collection(tmp_path / "mine", PASSAGES, queries, QRELS) == data
    with pytest.raises(InputError, match=r"holds corpus\.jsonl, which is not of this collection"):
        write_collection(tmp_path / "mine", {**PASSAGES, "e": "new"}, queries, QRELS)
    values = first.to_dataframe()
    assert np.allclose(values.mean(), [first.metrics[name] for name in MEASURES])
    compared = compare([first, again])
    assert compared.results.to_dataframe()["name"].tolist() == ["t", "u"]
    (pair,) = compared.pairs.to_dataframe().to_dict("records")
    assert (pair["a"], pair["b"], pair["difference"]) == ("t", "u", 0.0)


def test_a_text_may_be_called_contents_or_content(tmp_path: Path, ran: Callable[..., Any]) -> None:
    passages = {name: {"contents": text} for name, text in {"a": "apple pie", "b": "rain"}.items()}
    assert write_collection(tmp_path / "mine", passages, {"q1": "apple"}, {"q1": {"a": 1}})
    assert '"text": "apple pie"' in (tmp_path / "mine" / "corpus.jsonl").read_text(encoding="utf-8")


def test_a_collection_without_judgments_is_searched(tmp_path: Path, ran: Callable[..., Any]) -> None:
    assert ran(write_collection(tmp_path / "mine", PASSAGES, {"q1": "cat"})).metrics == {}
    unfit: list[Any] = [
        {"a": 5},
        ["a"],
        {"a": {"title": 1}},
        {None: "text"},
        {"a": {"body": "text"}},
        {"": "text"},
    ]
    unfit += [{"a": {"text": "cat", "contents": "cat"}}, {"a": "half \udc00"}, {"a\ufeff": "cat"}]
    for passages in unfit:
        with pytest.raises(InputError, match=r"^passages[:,] "):
            write_collection(tmp_path / "other", passages, {"q1": "cat"})
    assert not (tmp_path / "other").exists()
