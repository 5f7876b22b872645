"""The queries that differ most between two results, with the ranks of their relevant passages."""

import csv
import io
from pathlib import Path

import pytest
from comparison.made import make
from workplaces import benchmarco, document, hits, on_one_line

from pipeline import InputError, compare
from pipeline.studies.changes import find_changes


def test_the_largest_losses_and_gains_have_texts_and_ranks_of_the_relevant(
    results: list[Path], qrels: dict[tuple[str, str], int]
) -> None:
    (pair,) = document("compare", *results, "--measure", "ndcg@10", "--queries", 5)["changes"]["pairs"]
    values = {
        name: {row["query_id"]: float(row["ndcg@10"]) for row in csv.DictReader(io.StringIO(text))}
        for name, text in (("a", (results[0] / "per_query.csv").read_text()),)
    }
    differences = [each["difference"] for each in pair["queries"]]
    assert differences == sorted(differences)
    assert len(differences) <= 5
    ranks: dict[str, dict[str, int]] = {}
    for query, passage, _ in hits(results[0]):
        ranks.setdefault(query, {})[passage] = len(ranks.get(query, {})) + 1
    for each in pair["queries"]:
        assert each["text"]
        assert each["value_a"] == values["a"][each["query"]]
        judged = {
            passage for (query, passage), grade in qrels.items() if query == each["query"] and grade > 0
        }
        assert {one["passage"] for one in each["relevant"]} == judged
        for one in each["relevant"]:
            assert one["rank_a"] == ranks[each["query"]].get(one["passage"])


def test_they_are_in_the_terminal_and_csv_has_a_row_for_each_relevant_passage(results: list[Path]) -> None:
    said = on_one_line(benchmarco("compare", *results, "--queries", 3))
    assert "queries that differ most in ndcg@10" in said
    whole = document("compare", *results, "--queries", 3)["changes"]["pairs"][0]["queries"]
    rows = list(
        csv.DictReader(io.StringIO(benchmarco("compare", *results, "--queries", 3, "--format", "csv").stdout))
    )
    assert len(rows) == sum(max(len(each["relevant"]), 1) for each in whole)
    assert {row["query"] for row in rows} == {each["query"] for each in whole}
    assert all(row["passage_text"] for row in rows if row["passage"])


def test_one_result_and_suites_are_refused() -> None:
    with pytest.raises(InputError, match="one result"):
        find_changes(compare([make("alone", 1)]), 3)
