"""`data --audit`: defects of a collection that holds each of them, and what equal passages do to scores."""

import json

import pytest
from workplaces import benchmarco, on_one_line, read_json

from pipeline import evaluate, write_collection

PASSAGES = {
    "a": "Roasted coffee keeps for a month",
    "b": "roasted coffee is old",
    "twin": "Roasted\u00a0coffee  keeps for a month",
    "empty": "\u200b ",
    "short": "two words",
    "latin": "the caf\u00c3\u00a9 is open",
    "html": "a <b>bold</b> claim here",
    "control": "a bell\x07 rings twice",
    "whole": "what is roasted coffee",
    "other": "nothing of the kind here",
}
QUERIES = {"q1": "coffee", "q2": "What is tea", "q3": "coffee", "q4": "what is roasted coffee", "q5": "milk"}
JUDGED = {
    "q1": {"a": 3, "twin": 0, "b": 1}, "q2": {"other": 0}, "q3": {"b": 1}, "q4": {"twin": 2, "gone": 1},
    "q5": {"a": 1, "twin": 1},
}  # fmt: skip


@pytest.fixture
def audited(tmp_path, monkeypatch):
    """What `data --audit` says of the collection, and the folder of its cleaned copy."""
    monkeypatch.chdir(tmp_path)
    data = write_collection(tmp_path / "mine", PASSAGES, QUERIES, JUDGED)
    config = {"name": "t", "data": data, "model": {"backend": "bm25"}, "evaluate": {"measures": ["ndcg@10"]}}
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    printed = benchmarco("data", "c.yaml", "--audit", "--write", "clean", "--json").stdout
    return json.loads(printed)["audit"], tmp_path / "clean"


def test_every_defect_is_counted_with_ids(audited):
    found, _ = audited
    held = {each["what"]: (each["count"], each["examples"]) for each in found["defects"] if each["count"]}
    assert held == {
        "empty passages": (1, ["empty"]),
        "passages of fewer than 3 words": (1, ["short"]),
        "passages with mojibake": (1, ["latin"]),
        "passages with control characters": (2, ["empty", "control"]),
        "passages with HTML": (1, ["html"]),
        "passages whose text another one has": (2, ["a", "twin"]),
        "queries with equal passages whose grades differ": (2, ["q1", "q4"]),  # q5 grades both alike
        "queries with equal texts and other judgments": (2, ["q1", "q3"]),  # mteb#4959
        "queries whose text is a passage": (1, ["q4"]),  # mteb#5045
        "judgments of passages that do not exist": (1, ["gone"]),  # mteb#5021
        "queries without a relevant passage": (1, ["q2"]),
    }


def test_equal_passages_lower_a_perfect_ranking_as_a_run_shows(audited):
    """CoIR#18: two passages of one text, and a perfect system may rank the one that nobody judged first."""
    found, _ = audited
    worst = {
        "q1": {"twin": 9, "a": 8, "b": 7}, "q4": {"a": 9, "twin": 8, "gone": 7}, "q3": {"b": 9},
        "q5": {"a": 9, "twin": 8},
    }  # fmt: skip
    (change,) = found["scores"]
    assert change["lowest"] == pytest.approx(evaluate(JUDGED, worst, "ndcg@10").mean_by_measure["ndcg@10"])
    # equal passages stand next to each other: 0.80 would need a passage that is less relevant between two
    best = worst | {"q1": {"a": 9, "twin": 8, "b": 7}, "q4": {"twin": 9, "a": 8, "gone": 7}}
    assert change["perfect"] == pytest.approx(evaluate(JUDGED, best, "ndcg@10").mean_by_measure["ndcg@10"])
    assert found["queries_with_differing_twins"] == 2


def test_a_cleaned_copy_runs_and_lists_what_it_changed(audited, tmp_path):
    _, clean = audited
    changes = [line.split("\t") for line in (clean / "changes.tsv").read_text().splitlines()[1:]]
    assert changes == [["q1", "twin", "0", "3", "a"], ["q4", "a", "", "2", "twin"]]
    judged = (clean / "qrels" / "test.tsv").read_text()
    assert "q1\ttwin\t3\n" in judged
    assert "q4\tgone\t1\n" in judged
    config = {"name": "u", "data": {"source": "beir", "path": str(clean)}, "model": {"backend": "bm25"}}
    (tmp_path / "u.yaml").write_text(json.dumps(config), encoding="utf-8")
    assert benchmarco("run", "u.yaml").exit_code == 0
    assert read_json(tmp_path / "results" / "u" / "metrics.json")["passages"] == len(PASSAGES)
    again = benchmarco("data", "u.yaml", "--audit", "--json").stdout
    assert json.loads(again)["audit"]["scores"] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--write", "x"), "--write without --audit"),
        (("--audit", "--write", "mine"), "--write mine: is not empty"),
    ],
)
def test_a_copy_overwrites_nothing(audited, options, message):
    assert message in benchmarco("data", "c.yaml", *options, code=2).stderr


def test_a_run_says_that_copies_and_queries_stand_in_the_corpus(tmp_path, monkeypatch):
    """CoIR#18, mteb#4626: a copy of a relevant passage that nobody judged; mteb#5045: queries as passages."""
    monkeypatch.chdir(tmp_path)
    passages = {"none": "", "a": "warm coffee", "copy": "warm coffee", "b": "cold tea", "q": "which tea"}
    data = write_collection("mine", passages, {"1": "warm", "2": "which tea"}, {"1": {"a": 1}, "2": {"b": 1}})
    config = {"name": "t", "data": data, "model": {"backend": "bm25"}}
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    said = on_one_line(benchmarco("run", "c.yaml"))
    assert "1 passage that nobody judged has the text of a relevant one" in said
    assert "1 query stands in the corpus as a passage" in said
    shown = on_one_line(benchmarco("data", "c.yaml"))
    assert "passages nobody judged, with the text of a relevant one 1" in shown
    assert "queries that are a passage 1" in shown
