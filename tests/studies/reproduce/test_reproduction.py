"""Results that are run again: what is said to differ, and by what."""

import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from comparison.made import config
from workplaces import benchmarco, change_json, document, process

from pipeline import run_benchmark
from pipeline.results import read_result

BM25 = {"backend": "bm25"}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A result of BM25 on a collection in `data`, in `results/one` of a folder."""
    folder = tmp_path_factory.mktemp("bm25")
    shutil.copytree(root / "pipeline/data/sample", folder / "data")
    return run_benchmark(
        config(folder, "one", data={"source": "beir", "path": str(folder / "data")}, model=BM25 | {"k1": 1.5})
    ).folder


def test_an_unchanged_result_is_said_to_be_one_and_nothing_is_kept(one: Path) -> None:
    folder = one.parent.parent
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    shown = benchmarco("reproduce", one)
    assert "one: unchanged" in shown.output
    assert "The rankings and values of all 114 queries are the same." in shown.output
    assert "No input, setting, version or hardware differs" in shown.output
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before


ENDING = """
import os, signal, sys
from pathlib import Path
from pipeline import cli
replace, place = os.replace, Path(os.environ["TMPDIR"])
def ending(source, target):
    replace(source, target)
    if place in Path(target).parents:
        print("stored", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
os.replace = ending
cli.main()
"""


def test_a_run_ended_by_sigterm_leaves_no_temporary_folder(one: Path, tmp_path: Path) -> None:
    code, command = 128 + signal.SIGTERM, ("-c", ENDING, "reproduce", str(one))
    ended = process(one.parent, *command, code=code, TMPDIR=str(tmp_path))
    assert ended.stdout == "stored\n"
    assert [*tmp_path.iterdir()] == []


SERVER = {"backend": "http", "name": "m", "url": "http://127.0.0.1:9/v1"}
RISKY: dict[str, dict[str, Any]] = {
    "run Python files": {"model": {"backend": "flag", "name": "/m", "trust_remote_code": True}},
    "send the content of the environment variable LOOPBACK_KEY as a key (model.api_key_env), send texts": {
        "model": SERVER | {"api_key_env": "LOOPBACK_KEY"}
    },
    "send texts to http://127.0.0.1:9/v1 (fuse.of.2.rerank.url)": {
        "model": None, "fuse": {"of": [{"model": BM25}, {"model": BM25, "rerank": SERVER}]}
    },
    "the cluster 127.0.0.1:9": {"engine": {"kind": "ray", "address": "127.0.0.1:9"}},
}  # fmt: skip


@pytest.mark.parametrize("said", RISKY)
def test_what_a_stranger_s_manifest_would_do_must_be_asked_for(
    said: str, one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(one, tmp_path / "stranger"))
    change_json(folder / "manifest.json", **{f"config__{name}": value for name, value in RISKY[said].items()})
    monkeypatch.setenv("LOOPBACK_KEY", "secret")
    refused = benchmarco("reproduce", folder, code=2)
    assert said in refused.output
    for name in ("run", "plan"):
        assert said in benchmarco(name, folder / "manifest.json", code=2).output
    sets = re.findall(r"--set (\S+[^.\s])", refused.output.partition("add ")[2])
    asked = benchmarco("reproduce", folder, *(part for each in sets for part in ("--set", each)), code=None)
    assert "would" not in asked.output  # it goes on, to what is not there


def test_another_setting_and_other_passages_are_named(one: Path, tmp_path: Path) -> None:
    data = shutil.copytree(one.parent.parent / "data", tmp_path / "data")
    lines = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (data / "corpus.jsonl").write_text("".join(lines[40:]), encoding="utf-8")
    sets = ("--set", f"data.path={data}", "--set", "model.k1=0.9")
    found = document("reproduce", one, *sets, "--output", tmp_path / "again", code=1)
    assert found["unchanged"] is False
    assert 0 < len(found["changed"]) <= found["queries"]
    assert {each["name"].split(".")[0] for each in found["differences"]} == {"model", "data: passages"}
    assert {"kind": "setting", "name": "model.k1", "original": "1.5", "again": "0.9"} in found["differences"]
    assert read_result(tmp_path / "again/one").record.passages == 305
    assert "model.k1" in benchmarco("reproduce", one, "--against", tmp_path / "again/one", code=1).output


def test_a_suite_is_run_again_collection_by_collection(three_collections: Path, tmp_path: Path) -> None:
    names = ("small", "large")
    listed = {name: {"source": "beir", "path": str(three_collections / name)} for name in names}
    suite = run_benchmark(config(tmp_path, "two", data={"collections": listed})).folder
    assert "small: unchanged" in benchmarco("reproduce", suite).output
    sets = ("--set", "model.k1=5", "--set", "model.b=1")
    found = document("reproduce", suite, *sets, "--output", tmp_path / "again", code=1)
    assert tuple(found["collections"]) == names
    for name, again in found["collections"].items():
        assert [each["name"] for each in again["differences"]] == ["model.k1", "model.b"]
        assert read_result(tmp_path / "again/two" / name).record.name == name
    refused = benchmarco("reproduce", suite, "--against", suite / "small", code=2)
    assert "are not of the same collections" in refused.stderr


def test_versions_hardware_and_model_files_are_named_though_the_result_is_the_same(workplace: Path) -> None:
    later = workplace / "results/t"
    original = shutil.copytree(later, workplace / "original")
    files = {"recipes__passages__model__identity__files": {"a.bin": "0" * 64}}
    change_json(later / "manifest.json", versions__torch="1.0", **files)
    change_json(later / "metrics.json", stages__1__threads=64)
    found = document("reproduce", original, "--against", later)["differences"]
    listed = [(each["kind"], each["name"], each["again"]) for each in found]
    assert ("version", "torch", "1.0") in listed
    assert ("hardware", "threads", "64") in listed
    assert any(kind == "input" and name.endswith("a.bin") for kind, name, _ in listed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none"], "none does not exist"),
        (["one", "--against", "one", "--set", "model.k1=2"], "--against alone"),
        (["one", "--output", "."], "the result that is run again is there"),
        (["one", "--set", "data.path=nowhere"], "nowhere"),
        (["one", "--set", "model.k9=2"], "k9"),
    ],
)
def test_bad_input_is_refused_in_one_message(
    one: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(one.parent)
    (line,) = benchmarco("reproduce", *arguments, code=2).stderr.strip().splitlines()
    assert said in line
