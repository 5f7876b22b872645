"""Why a query failed: hand-made rankings and judgments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline import compare, run_benchmark
from pipeline.report.page.queries import Hit, explain_query, read_query_data, select_queries


def ranking(names: str) -> list[tuple[str, float]]:
    """Passages `a`, `b`, … with falling scores."""
    return [(name, 1 - rank / 100) for rank, name in enumerate(names)]


def test_what_is_missed_stands_by_grade_and_then_by_rank() -> None:
    told = explain_query(ranking("abcdefghijklmn"), {"a": 0, "m": 1, "l": 1, "z": 3, "n": 2, "c": 1}, rel=1)
    assert [(hit.passage, hit.rank, hit.grade) for hit in told.missed] == [
        ("z", None, 3), ("n", 14, 2), ("l", 12, 1), ("m", 13, 1)
    ]  # fmt: skip
    assert told.top[0] == Hit("a", 1, 1.0, 0)
    assert told.top[1].grade is None
    assert (told.ranks, told.relevant, told.depth) == ([3, 12, 13, 14], 5, 14)


TOLD = {
    "A relevant passage is at rank 1. The top 2 contains 1 of 1 relevant passage.": ("ab", {"a": 1, "b": 0}),
    "The first relevant passage is at rank 4, below 1 judged non-relevant and 2 unjudged. "
    "The top 4 contains 1 of 2 relevant passages. 2 of the top 4 are unjudged.": (
        "abcd",
        {"d": 2, "a": 0, "x": 2},
    ),
    "The only relevant passage is not among the 2 retrieved.": ("ab", {"a": 0, "b": 0, "c": 1}),
    "None of the 2 relevant passages is among the 2 retrieved. 2 of the top 2 are unjudged.": (
        "ab",
        {"c": 1, "d": 1},
    ),
    "No passage is judged relevant.": ("ab", {"a": 0, "b": 0}),
}


def test_why_says_who_stands_above() -> None:
    for why, (names, grades) in TOLD.items():
        assert explain_query(ranking(names), grades, rel=1).why == why
    assert explain_query(ranking("ab"), {"a": 1, "b": 1}, rel=2).why == "No passage is judged relevant."


def test_a_result_without_any_hit_is_explained(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "p", "text": "apple"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "pear"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tp\t1\n")
    data = {"source": "beir", "path": str(tmp_path)}
    config = {"name": "none", "data": data, "model": {"backend": "bm25"}, "output": str(tmp_path)}
    result = run_benchmark(config | {"cache": str(tmp_path / "indexes")})
    (examined,) = read_query_data(compare([result.folder])).details
    assert examined is not None
    assert (examined.curves["ndcg"], examined.judged) == ([0], 0)
    assert examined.queries["q"].why == "The only relevant passage is not among the 0 retrieved."


def test_telling_takes_of_every_pair_and_every_result_in_turn() -> None:
    values = np.array([[0.5, 0.5], [0.9, 0.1], [0.0, 0.2], [1.0, 0.9]])
    assert select_queries(values, 2) == [1, 2]
    assert select_queries(values, 9) == [1, 2, 0, 3]


def test_curves_and_ranks_are_those_of_the_result(folders: list[Path]) -> None:
    compared = compare(folders, "ndcg@10")
    data = read_query_data(compared)
    for entry, source, examined in zip(compared.results, compared.sources, data.details, strict=True):
        assert examined is not None
        curve = dict(zip(examined.cutoffs, examined.curves["ndcg"], strict=True))
        assert curve[10] == pytest.approx(entry.mean, abs=1e-12)
        curve = dict(zip(examined.cutoffs, examined.curves["recall"], strict=True))
        assert curve[20] == pytest.approx(source.record.metrics["recall@20"], abs=1e-12)
        assert max(curve) == 50  # search.top_k
        told = examined.queries["q001"]
        lines = (source.folder / "run.trec").read_text(encoding="utf-8").splitlines()
        first = [line.split() for line in lines if line.startswith("q001 ")][:10]
        assert [(hit.passage, hit.rank) for hit in told.top] == [(line[2], int(line[3])) for line in first]
        assert [hit.score for hit in told.top] == pytest.approx([float(line[4]) for line in first])
    assert data.queries["q001"] == "how long does it take espresso beans to go stale"
