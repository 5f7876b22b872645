"""Hits that are not scored: a result counts the relevant ones among them."""

from pathlib import Path
from typing import Any

from workplaces import benchmarco, on_one_line

from pipeline import run_benchmark, write_collection


def test_relevant_passages_with_their_query_s_id_are_counted(tmp_path: Path, monkeypatch: Any) -> None:
    """beir#187: query 0 loses the relevant passage 0, and nothing said so."""
    monkeypatch.chdir(tmp_path)
    passages = {str(number): f"word number {number}" for number in range(4)}
    data = write_collection("mine", passages, {"0": "word"}, {"0": dict.fromkeys(passages, 1)})
    config = {
        "name": "t", "data": data | {"ignored": "identical_ids"}, "model": {"backend": "bm25"},
        "evaluate": {"measures": ["recall@10"]},
    }  # fmt: skip
    result = run_benchmark(config)
    assert result.metrics["recall@10"] == 0.75
    note = "1 relevant passage is left out for having the query's id"
    assert note in result.only_collection().record.notes
    assert note in on_one_line(benchmarco("compare", result.folder, result.folder))
    assert "ignored_relevant" not in run_benchmark({**config, "name": "u", "data": data}).document


def test_queries_that_are_passages_are_named_until_they_are_left_out(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """ArguAna: the same sentence stood there with data.ignored and without."""
    monkeypatch.chdir(tmp_path)
    passages = {"q0": "a word", "q1": "another", "p": "a third word", "r": "another word"}
    data = write_collection(
        "mine", passages, {"q0": "a word", "q1": "another word"}, {"q0": {"p": 1, "q0": 1}}
    )
    data |= {"unjudged_queries": "keep"}
    config = {"name": "t", "data": data, "model": {"backend": "bm25"}, "evaluate": {"measures": ["recall@3"]}}
    own = "1 query is a passage of the same id (left out with data.ignored: identical_ids)"
    copied = "1 query stands in the corpus as a passage"
    notes = run_benchmark(config).only_collection().record.notes
    assert {own, copied} <= {*notes}
    removed = run_benchmark({**config, "data": data | {"ignored": "identical_ids"}}).only_collection()
    assert {own, copied} & {*removed.record.notes} == {copied}


def test_evaluate_counts_relevant_documents_with_their_query_s_id_and_short_rankings(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q0 0 q0 1\nq0 0 d 1\nmissing 0 d 1\n", encoding="utf-8")
    (tmp_path / "run").write_text("q0 Q0 q0 1 3 t\nq0 Q0 e 2 2 t\nq0 Q0 d 3 1 t\n", encoding="utf-8")
    arguments = (
        "evaluate",
        "--qrels",
        tmp_path / "qrels",
        "--run",
        tmp_path / "run",
        "--measures",
        "recall@3",
    )
    said = on_one_line(benchmarco(*arguments, "--ignore-identical-ids"))
    assert "1 relevant passage is left out for having the query's id" in said
    assert "fewer than 3 passages were found for 1 query (2 at the fewest)" in said
    assert "for having the query's id" not in on_one_line(benchmarco(*arguments))
