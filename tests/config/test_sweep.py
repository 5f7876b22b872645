"""Sweeps: which benchmarks a file makes, what they share, and what a failure of one does to the others."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from inside import keep_stderr, watch
from workplaces import benchmarco, config, document, read_json

from pipeline import InputError, load_configs, run_benchmarks
from pipeline.config import as_config, file_schema

BASE = "name: t\ndata: {source: sample}\nmodel: {name: all-minilm-l6-v2, precision: bf16}\n"


def write(folder: Path, sweep: str) -> Path:
    path = folder / "s.yaml"
    path.write_text(BASE + sweep, encoding="utf-8")
    return path


LIST = """
sweep:
  - {name: plain}
  - {name: other, model.precision: fp32, search: {top_k: 7}}
  - {name: whole, model: {precision: fp16, query_instruction: "q: "}, model.normalize: false}
"""


def test_a_list_changes_what_its_entries_say(tmp_path: Path) -> None:
    plain, other, whole = load_configs(write(tmp_path, LIST))
    assert [each.name for each in (plain, other, whole)] == ["plain", "other", "whole"]
    assert (plain.model.precision, plain.search.top_k) == ("bf16", 1000)
    assert (other.model.precision, other.search.top_k) == ("fp32", 7)
    assert (whole.model.precision, whole.model.query_instruction) == ("fp16", "q: ")
    assert not whole.model.normalize
    assert {each.model.name for each in (plain, other, whole)} == {"all-minilm-l6-v2"}


def test_a_grid_makes_every_combination_with_a_name_of_its_values(tmp_path: Path) -> None:
    grid = "sweep: {model.precision: [fp32, bf16], search: {top_k: [10, 20]}, index.factory: ['IVF4,Flat']}\n"
    made = load_configs(write(tmp_path, grid))
    assert [(each.name, each.model.precision, each.search.top_k) for each in made] == [
        ("t-fp32-top_k-10", "fp32", 10),
        ("t-fp32-top_k-20", "fp32", 20),
        ("t-bf16-top_k-10", "bf16", 10),
        ("t-bf16-top_k-20", "bf16", 20),
    ]
    assert {each.index.factory for each in made} == {"IVF4,Flat"}


@pytest.mark.parametrize(
    ("sweep", "names"),
    [
        ("{model.name: [BAAI/bge-base-en-v1.5, ./a/b/]}", "t-bge-base-en-v1.5 t-b"),
        ("{model.normalize: [true, false]}", "t-normalize-true t-normalize-false"),
        (
            "{model.query_instruction: [null, '', 'q: ', 'q -']}",
            "t-query_instruction-null t-query_instruction-empty t-q t-q-2",
        ),
        ("{evaluate.measures: [[ndcg@10, mrr], [mrr]]}", "t-ndcg-10-mrr t-mrr"),
        ("[{}, {model.precision: fp32}, {name: own}]", "t t-fp32 own"),
        ("[{search.top_k: 20}]", "t"),
        ("null", "t"),
    ],
)
def test_names_are_made_of_what_differs(tmp_path: Path, sweep: str, names: str) -> None:
    made = [each.name for each in load_configs(write(tmp_path, f"sweep: {sweep}"))]
    assert made == names.split()


def test_set_changes_what_the_sweep_leaves_alone(tmp_path: Path) -> None:
    path = write(tmp_path, LIST)
    assert {each.model.pooling for each in load_configs(path, ["model.pooling=cls"])} == {"cls"}
    for given in ("model.precision=fp32", "model={}", "search.top_k.x=1", "name=u"):
        with pytest.raises(InputError, match=f"--set {given}: the sweep of config .* itself"):
            load_configs(path, [given])
    assert [each.name for each in load_configs(path, ["sweep=null", "name=u"])] == ["u"]
    assert len(load_configs(write(tmp_path, ""), ["sweep.model.precision=[fp32, bf16]"])) == 2


def test_the_schema_knows_sweeps() -> None:
    properties = file_schema()["properties"]
    assert set(properties) > {"name", "data", "model", "sweep"}


def test_a_config_of_several_benchmarks_is_not_one() -> None:
    with pytest.raises(InputError, match="config config holds several benchmarks, by its 'sweep'"):
        as_config({"name": "t", "data": {"source": "sample"}, "sweep": {"search.top_k": [5, 6]}})


@pytest.fixture
def run(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a sweep over the finished run's config by the command line."""
    monkeypatch.chdir(workplace)
    keep_stderr(monkeypatch)

    def command(sweep: str, *options: str, code: int = 0) -> Result:
        text = Path("c.yaml").read_text(encoding="utf-8")
        Path("s.yaml").write_text(f"{text}sweep: {sweep}\n", encoding="utf-8")
        return benchmarco("run", "s.yaml", *options, code=code)

    return command


def computed(name: str) -> list[str]:
    metrics = read_json(Path("results", name, "metrics.json"))
    return [row["stage"] for row in metrics["stages"] if not row["reused"]]


def test_runs_share_what_they_can_and_end_with_a_table(run: Callable[..., Result]) -> None:
    sweep = "{search.top_k: [50, 60], evaluate.measures: [[mrr@5]]}"
    done = run(sweep)
    assert computed("t-top_k-50") == ["evaluate"]
    assert computed("t-top_k-60") == ["search", "evaluate"]
    assert "2 of 2 benchmarks finished" in done.stdout
    assert "benchmarco compare results/t-top_k-50 results/t-top_k-60" in done.stdout
    run(sweep, "--fresh")
    assert len(computed("t-top_k-50")) == 6
    assert computed("t-top_k-60") == ["search", "evaluate"]  # what is shared is made once


def test_data_is_read_and_described_once_with_the_tokens_of_its_model(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "s.yaml").write_text(
        "name: t\ndata: {source: beir, path: data}\nmodel: {name: ./bge-small-en-v1.5}\n"
        "evaluate: {measures: [ndcg@10]}\nsweep: {model.backend: [bm25, openvino], search.top_k: [50, 60]}",
        encoding="utf-8",
    )
    hashed: list[str] = []
    watch(monkeypatch, "hash a file", lambda path: hashed.append(path.name))
    monkeypatch.chdir(workplace)
    described = document("data", "s.yaml")
    assert described["name"] == "t-bm25-top_k-50"
    assert described["lengths"]["queries"]["tokens"]["counted"] == 114
    assert sorted(hashed) == ["corpus.jsonl", "queries.jsonl", "test.tsv"]
    assert len(document("plan", "s.yaml")) == 4


def test_a_mistake_that_is_plain_beforehand_stops_all(run: Callable[..., Result], workplace: Path) -> None:
    done = run("[{name: good}, {name: bad, model.name: ./none}]", code=2)
    assert done.stderr.startswith("benchmarco: bad: model.name: no folder")
    assert not (workplace / "results" / "good").exists()
    good, bad = load_configs("s.yaml")
    with pytest.raises(InputError, match=r"bad: model\.name: no folder"):
        run_benchmarks([good, bad])  # and not only when the first outcome is asked for
    with pytest.raises(InputError, match="another config is named 'results/good' too"):
        run_benchmarks([good, good])
    run_benchmarks([good, good.model_copy(update={"output": "others"})])


def test_names_that_differ_by_case_are_refused_where_the_disk_takes_them_for_one(workplace: Path) -> None:
    """As on a Mac: the second result would replace the first."""
    both = [config(workplace, f"name={name}") for name in ("Base", "base")]
    (workplace / "results" / "base").touch()
    with pytest.raises(InputError, match="is not a folder"):
        run_benchmarks(both)
    (workplace / "RESULTS").symlink_to("results")
    with pytest.raises(InputError, match=r"another config is named '.*results/base' too"):
        run_benchmarks(both)


@pytest.mark.parametrize(
    ("failing", "code", "message"),
    [
        ("{name: disk, cache: /proc/no}", 1, "disk failed: "),
        ("{name: disk, cache: /proc/no}, {name: cut, data.path: cut}", 2, "cut failed: "),
    ],
)
def test_one_that_fails_does_not_stop_the_rest(
    run: Callable[..., Result], workplace: Path, failing: str, code: int, message: str
) -> None:
    cut = shutil.copytree(workplace / "data", workplace / "cut")
    with open(cut / "corpus.jsonl", "a", encoding="utf-8") as file:
        file.write('{"_id": "last", "te')
    done = run(f"[{failing}, {{name: good}}]", code=code)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "1 of " in done.stdout
    assert computed("good") == []
