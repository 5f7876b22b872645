"""Texts that are longer than what a model reads are counted while they are encoded, and reported."""

import json
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tokenizers import Tokenizer
from workplaces import read_json

from pipeline import compare, load_config, run_benchmark
from pipeline.config import BACKENDS
from pipeline.encoders import resolve
from pipeline.models import token_counter
from pipeline.studies.collection import describe_data

QUERIES = ["how do pilots guide ships", "who wrote the magic mountain"]
READ = 60


@pytest.fixture
def texts(passages: list[str]) -> list[str]:
    """Short passages, and some of several hundred tokens; one is empty."""
    long = [" ".join(passages[first : first + 10]) for first in (0, 20, 40)]
    return [*long, *(passage[:80] for passage in passages[60:66]), ""]


@pytest.fixture
def run(bge_folder: Path, tmp_path: Path) -> Callable[..., Any]:
    """Runs a model that reads 60 tokens of a passage on some passages; gives the result."""

    def benchmark(
        name: str, corpus: list[str], cache: str = "cache", more: Any = MappingProxyType({}), **model: Any
    ) -> Any:
        data = tmp_path / name
        (data / "qrels").mkdir(parents=True, exist_ok=True)
        for file, prefix, lines in (("corpus", "d", corpus), ("queries", "q", QUERIES)):
            records = [json.dumps({"_id": f"{prefix}{n}", "text": text}) for n, text in enumerate(lines)]
            (data / f"{file}.jsonl").write_text("\n".join(records), encoding="utf-8")
        (data / "qrels" / "test.tsv").write_text(
            "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t1\n", "utf-8"
        )
        settings = {"backend": "flag", "name": str(bge_folder), "passage_max_length": READ, **model}
        (tmp_path / f"{name}.yaml").write_text(
            json.dumps(
                {
                    "name": name, "data": {"source": "beir", "path": str(data)}, "model": settings,
                    "search": {"top_k": 5}, "evaluate": {"measures": ["ndcg@5"]}, **more,
                    "cache": str(tmp_path / cache), "output": str(tmp_path / "results"),
                }
            ), encoding="utf-8",
        )  # fmt: skip
        return run_benchmark(load_config(tmp_path / f"{name}.yaml"))

    return benchmark


def truncation(result: Any) -> Any:
    return read_json(result.folder / "metrics.json")["truncation"]


def test_what_a_model_does_not_read_is_counted(
    run: Callable[..., Any], texts: list[str], bge_folder: Path, tmp_path: Path
) -> None:
    result = run("one", texts, passage_instruction="passage: ")
    count = token_counter(resolve(BACKENDS.make(backend="flag", name=str(bge_folder))).model.tokenizer)
    counts = count([f"passage: {text}" for text in texts])
    expected = {"max_length": READ, "texts": len(texts), "cut": 3, "tokens": sum(counts)}
    assert truncation(result)["passages"] == {
        **expected, "tokens_cut": sum(max(each - READ, 0) for each in counts)
    }  # fmt: skip
    assert truncation(result)["queries"]["cut"] == 0
    assert "3 of 10 passages (30.00%) have more than the 60 tokens" in str(result)
    (described,) = describe_data([load_config(tmp_path / "one.yaml")]).values()
    lengths = described["lengths"]["passages"]["tokens"]["truncation"]
    assert (lengths["cut"], lengths["tokens_cut"]) == (3, truncation(result)["passages"]["tokens_cut"])


def test_copied_rows_and_finished_artifacts_are_counted_too(
    run: Callable[..., Any], texts: list[str], passages: list[str]
) -> None:
    run("one", texts)
    more = [*texts[2:], *passages[70:75]]
    copied, again, fresh = run("two", more), run("two", more), run("two", more, cache="other")
    assert truncation(copied) == truncation(again) == truncation(fresh)
    assert copied.record.stage("passages").found == len(texts) - 2


def test_a_comparison_says_once_whose_model_reads_the_least(
    run: Callable[..., Any], texts: list[str]
) -> None:
    results = [run("one", texts).folder, run("two", texts, passage_max_length=80).folder]
    (note,) = (note for note in compare(results).notes if "that the model reads" in note)
    assert note.startswith("one: 3 of 10 passages")
    assert note.endswith("; texts of 1 other result are cut, too")


def test_pairs_that_a_reranker_cuts_are_counted_once_they_are_scored(
    run: Callable[..., Any], reranker: Callable[[str], Path], texts: list[str]
) -> None:
    """Of pairs whose scores are known already, too."""
    settings: Any = {"backend": "flag", "name": str(reranker("bert")), "max_length": READ}
    results = [
        run(name, texts, query_max_length=READ, more={"rerank": {**settings, "depth": depth}})
        for name, depth in (("one", 2), ("two", 5))
    ]
    tokenizer = Tokenizer.from_file(str(Path(settings["name"]) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    lines = (results[1].folder / "run.trec").read_text(encoding="utf-8").splitlines()
    pairs = [(QUERIES[int(line.split()[0][1:])], texts[int(line.split()[2][1:])]) for line in lines]
    lengths = [len(tokenizer.encode(*pair).ids) for pair in pairs]
    over = [length - READ for length in lengths if length > READ]
    assert truncation(results[0])["pairs"]["texts"] == 4
    assert truncation(results[1])["pairs"] == {
        "max_length": READ, "texts": 10, "cut": len(over), "tokens": sum(lengths), "tokens_cut": sum(over)
    }  # fmt: skip
    assert results[1].record.stage("rerank").pairs.found == 4
    assert f"{len(over)} of 10 pairs" in str(results[1])
