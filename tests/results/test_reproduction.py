"""Results that are run again: what is said to differ, and by what."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click.testing
import pytest
from typer.testing import CliRunner

from pipeline.api import run_benchmark
from pipeline.cli import app
from pipeline.config.files import load_config
from pipeline.results.folder import read_result
from pipeline.run.reproduction import Difference, compare_with_original


def command(*arguments: object) -> click.testing.Result:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


@pytest.fixture(scope="module")
def bm25(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A folder with a collection and two results on it, of BM25 with other parameters."""
    folder = tmp_path_factory.mktemp("bm25")
    shutil.copytree(root / "pipeline/data/sample", folder / "data")
    for name, k1 in (("one", 1.5), ("flat", 0.1)):
        (folder / f"{name}.yaml").write_text(
            f"name: {name}\ndata: {{source: beir, path: data}}\n"
            f"model: {{backend: bm25, k1: {k1}}}\nsearch: {{top_k: 20}}\n"
            "evaluate: {measures: [ndcg@10, mrr@10]}\n"
            f"cache: {folder}/indexes\noutput: {folder}/results\n",
            encoding="utf-8",
        )
        run_benchmark(load_config(folder / f"{name}.yaml"))
    return folder


def test_an_unchanged_result_is_said_to_be_one_and_nothing_is_kept(bm25: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in bm25.rglob("*") if path.is_file()}
    shown = command(bm25 / "results/one")
    assert shown.exit_code == 0
    assert "one: unchanged" in shown.output
    assert "The rankings and values of all 114 queries are the same." in shown.output
    assert "No input, setting, version or hardware differs" in shown.output
    assert {path: path.stat().st_mtime_ns for path in bm25.rglob("*") if path.is_file()} == before


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


def test_a_run_ended_by_sigterm_leaves_no_temporary_folder(bm25: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDING, "reproduce", "results/one"],
        cwd=bm25,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ended.stdout == "stored\n"
    assert [*tmp_path.iterdir()] == []
    assert ended.returncode == 128 + signal.SIGTERM


RISKY = {
    "code": ({"model": {"backend": "flag", "name": "/m", "trust_remote_code": True}}, "run Python files"),
    "a key": (
        {
            "model": {
                "backend": "http", "name": "m", "url": "http://127.0.0.1:9/v1", "api_key_env": "LOOPBACK_KEY",
            }
        },
        "send texts to http://127.0.0.1:9/v1 (model.url), send the content of the environment variable",
    ),
    "a part's reranker": (
        {
            "model": None,
            "fuse": {
                "of": [
                    {"model": {"backend": "bm25"}},
                    {
                        "model": {"backend": "bm25"},
                        "rerank": {"backend": "http", "name": "m", "url": "http://127.0.0.1:9/v1"},
                    },
                ]
            },
        },
        "send texts to http://127.0.0.1:9/v1 (fuse.of.2.rerank.url)",
    ),
    "a cluster": ({"engine": {"kind": "ray", "address": "127.0.0.1:9"}}, "the cluster 127.0.0.1:9"),
}  # fmt: skip


@pytest.mark.parametrize("case", RISKY)
def test_what_a_stranger_s_manifest_would_do_must_be_asked_for(
    case: str, bm25: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, said = RISKY[case]
    folder = Path(shutil.copytree(bm25 / "results/one", tmp_path / "stranger"))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["config"] |= changes
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    monkeypatch.setenv("LOOPBACK_KEY", "secret")
    refused = command(folder)
    assert refused.exit_code == 2
    assert said in refused.output
    for name in ("run", "plan"):
        same = CliRunner().invoke(app, [name, str(folder / "manifest.json")])
        assert (same.exit_code, same.output) == (2, refused.output)
    sets = re.findall(r"--set (\S+[^.\s])", refused.output.partition("add ")[2])
    asked = command(folder, *(part for each in sets for part in ("--set", each)))
    assert "would" not in asked.output  # it goes on, to what is not there


def test_another_setting_and_other_passages_are_named(bm25: Path, tmp_path: Path) -> None:
    data = shutil.copytree(bm25 / "data", tmp_path / "data")
    lines = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (data / "corpus.jsonl").write_text("".join(lines[40:]), encoding="utf-8")
    sets = ("--set", f"data.path={data}", "--set", "model.k1=0.9")
    done = command(bm25 / "results/one", *sets, "--output", tmp_path / "again", "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["unchanged"] is False
    assert 0 < len(found["changed"]) <= found["queries"]
    assert {each["name"].split(".")[0] for each in found["differences"]} == {"model", "data: passages"}
    assert {"kind": "setting", "name": "model.k1", "original": "1.5", "again": "0.9"} in found["differences"]
    assert read_result(tmp_path / "again/one").record.passages == 305
    again = command(bm25 / "results/one", "--against", tmp_path / "again/one")
    assert "model.k1" in again.output


def test_a_suite_is_run_again_collection_by_collection(three_collections: Path, tmp_path: Path) -> None:
    listed = ", ".join(f"{n}: {{source: beir, path: {three_collections / n}}}" for n in ("small", "large"))
    (tmp_path / "c.yaml").write_text(
        f"name: two\ndata: {{collections: {{{listed}}}}}\nmodel: {{backend: bm25}}\n"
        f"evaluate: {{measures: [mrr@10]}}\ncache: {tmp_path}/indexes\noutput: {tmp_path}/results\n",
        encoding="utf-8",
    )
    suite = run_benchmark(load_config(tmp_path / "c.yaml")).folder
    done = command(suite)
    assert done.exit_code == 0
    assert "small: unchanged" in done.output
    done = command(
        suite, "--set", "model.k1=5", "--set", "model.b=1", "--output", tmp_path / "again", "--json"
    )
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert list(found["collections"]) == ["small", "large"]
    for name, again in found["collections"].items():
        assert [each["name"] for each in again["differences"]] == ["model.k1", "model.b"]
        assert read_result(tmp_path / "again/two" / name).record.name == name
    refused = command(suite, "--against", suite / "small")
    assert refused.exit_code == 2
    assert "are not of the same collections" in refused.stderr


def test_another_precision_is_named(workplace: Path) -> None:
    where = [f"cache={workplace}/indexes", f"output={workplace}/results", "name=bf16"]
    run_benchmark(load_config(workplace / "c.yaml", [*where, "model.precision=bf16"]))
    original, again = workplace / "results/t", workplace / "results/bf16"
    found = compare_with_original(read_result(original), read_result(again))
    assert found.differences[0] == Difference("setting", "model.precision", "fp32", "bf16")
    assert found.changed
    assert command(original, "--against", again).exit_code == 1


def test_versions_hardware_and_model_files_are_named_though_the_result_is_the_same(workplace: Path) -> None:
    def change(name: str, **changes: Any) -> None:
        path = workplace / "results/t" / name
        content = json.loads(path.read_text(encoding="utf-8"))
        for dotted, value in changes.items():
            *above, last = dotted.split("__")
            holder = content
            for key in above:
                holder = holder[int(key) if key.isdecimal() else key]
            holder[last] = value
        path.write_text(json.dumps(content), encoding="utf-8")

    original = shutil.copytree(workplace / "results/t", workplace / "original")
    files = {"a.bin": "0" * 64}
    change("manifest.json", versions__torch="1.0", recipes__passages__model__identity__files=files)
    change("metrics.json", stages__1__threads=64)
    found = command(original, "--against", workplace / "results/t", "--json")
    assert found.exit_code == 0
    listed = [(each["kind"], each["name"], each["again"]) for each in json.loads(found.stdout)["differences"]]
    assert ("version", "torch", "1.0") in listed
    assert ("hardware", "threads", "64") in listed
    assert any(kind == "input" and name.endswith("a.bin") for kind, name, _ in listed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["results/none"], "results/none does not exist"),
        (["results/one", "--against", "results/flat", "--set", "model.k1=2"], "--against alone"),
        (["results/one", "--output", "results"], "the result that is run again is there"),
        (["results/one", "--set", "data.path=nowhere"], "nowhere"),
        (["results/one", "--set", "model.k9=2"], "k9"),
    ],
)
def test_bad_input_is_refused_in_one_message(
    bm25: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(bm25)
    done = command(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
