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
    note = "1 relevant passage was found and not scored, as data.ignored says"
    assert note in result.only_collection().record.notes
    assert note in on_one_line(benchmarco("compare", result.folder, result.folder))
    assert "ignored_relevant" not in run_benchmark({**config, "name": "u", "data": data}).document
