"""A benchmark without a file: `--model` and `--data` stand for a config, which `example` prints."""

from pathlib import Path

import pytest
import yaml
from inside import be_offline
from layouts import Plain, flag, msmarco
from workplaces import benchmarco, document, on_one_line, read_json

from pipeline import write_collection

PLAIN = Plain([("d1", "", "the cat sat"), ("d2", "", "a dog ran")], [("q1", "cat")], [("q1", "d1", 1)])


def said(*arguments: str) -> str:
    return benchmarco(*arguments).stdout


def keys(*arguments: str) -> list[tuple[str, list[str]]]:
    """The name of each planned benchmark, and the keys of its stages."""
    planned = document("plan", *arguments)
    listed = planned if isinstance(planned, list) else [planned]
    return [(each["name"], [stage["key"] for stage in each["stages"]]) for each in listed]


@pytest.fixture
def place(three_collections: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with collections in three layouts; that in BEIR's is gzip."""
    flag(tmp_path / "flag", PLAIN)
    msmarco(tmp_path / "ms", PLAIN)
    for name in ("small", "middle"):
        (tmp_path / name).symlink_to(three_collections / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_printed_config_is_what_is_run(place: Path) -> None:
    sets = ["--set", "search.top_k=7", "--set", "evaluate.measures=ndcg@5"]
    line = ["--model", "bm25", "--data", "small", *sets]
    (place / "mine.yaml").write_text(said("example", *line), encoding="utf-8")
    assert yaml.safe_load((place / "mine.yaml").read_text(encoding="utf-8")) == {
        "name": "bm25-small",
        "data": {"source": "beir", "path": "small"},
        "model": {"backend": "bm25"},
        "search": {"top_k": 7},
        "evaluate": {"measures": "ndcg@5"},
    }
    assert keys("mine.yaml") == keys(*line)
    assert document("run", "mine.yaml")["metrics"].keys() == {"ndcg@5"}
    assert (place / "results" / "bm25-small" / "metrics.json").is_file()


def test_several_of_each_are_a_sweep_over_a_suite(place: Path, minilm_folder: Path) -> None:
    (place / "tuned").symlink_to(minilm_folder)
    data = ["--data", "small/", "--data", "middle"]
    said("run", "--model", "bm25", *data)
    (place / "both.yaml").write_text(said("example", "--model", "bm25", *data), encoding="utf-8")
    suite = read_json(place / "results/bm25-small-middle/suite.json")
    assert suite["collections"] == ["small", "middle"]
    planned = keys("--model", "bm25", "--model", "tuned", *data)
    sweep = "sweep=[{model: {backend: bm25}}, {name: other, model: {backend: auto, name: ./tuned}}]"
    assert [found for _, found in planned] == [found for _, found in keys("both.yaml", "--set", sweep)]
    names = [f"{model}-small-middle" for model in ("bm25", minilm_folder.name) for _ in data[::2]]
    assert [name.partition("/")[0] for name, _ in planned] == names


@pytest.mark.parametrize(
    ("data", "section", "settings"),
    [
        ("flag", "source: flag, path: flag", ["data.split=dev"]),
        ("ms", "source: msmarco, path: ms", ["data.split=dev.small"]),
        ("sample", "source: sample", ["data.queries=20"]),
        ("beir/nfcorpus/test", "source: ir_datasets, path: beir/nfcorpus/test", []),
    ],
)
def test_what_data_may_name(place: Path, data: str, section: str, settings: list[str]) -> None:
    sets = [word for each in settings for word in ("--set", each)]
    ((name, planned),) = keys("--model", "bm25", "--data", data, *sets)
    assert name == f"bm25-{data.replace('/', '-')}"
    written = f"name: c\ndata: {{{section}}}\nmodel: {{backend: bm25}}\n"
    (place / "c.yaml").write_text(written, encoding="utf-8")
    assert planned == keys("c.yaml", *sets)[0][1]


def test_a_suite_by_name_and_by_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"collections": {"one": {"data": {"source": "beir", "path": "small"}}}}
    (place / "own.yaml").write_text(yaml.safe_dump(listed), encoding="utf-8")
    said("run", "--model", "bm25", "--data", "own.yaml")
    assert (place / "results" / "bm25-own" / "one" / "metrics.json").is_file()
    be_offline(monkeypatch)  # it would be asked for for minutes
    assert "NanoArguAna" in benchmarco("run", "--model", "bm25", "--data", "nanobeir", code=2).stderr


def test_a_folder_without_judgments(place: Path) -> None:
    write_collection(place / "mine", {"d1": "the cat sat"}, {"q1": "cat"})
    line = ["run", "--model", "bm25", "--data", "mine"]
    refused = benchmarco(*line, code=2)
    assert "data.unjudged_queries: keep needs no judgments" in on_one_line(refused)
    assert "benchmarco pool" in said(*line, "--set", "data.unjudged_queries=keep")
