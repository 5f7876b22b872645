"""Commands, configs and snippets of the README and of docs/, run in their order on small data, offline."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from chat_server import ChatServer
from inside import be_offline, keep_stderr
from shipped import export, quantize, train_adapter
from typer.testing import CliRunner
from workplaces import read_json

from pipeline.cli import app
from pipeline.metrics import MEASURES, Definition

SCRIPTS = {"scripts/quickstart", "scripts/test"}
BROUGHT = re.compile(r"results/(A|B|new|minilm)\b|\.trec|configs/(dl19|msmarco|served)|/dl19|mine-slice")
"""What commands in docs/ name that a reader has, that is too large for a test, or needs another PyTorch."""
OTHERS = ("afford", "first-decision", "how-do-i", "judge", "releasing", "smaller-vectors")
"""Pages with a test of their own, or of commands that nobody tries."""
SLOW = ("reproduce",)
"""Commands that compute everything anew; the page how-do-i runs them with a small model."""
VERDICTS = {"gate": {0, 3, 4}}
"""Exit codes other than 0 that are an answer, by command."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """The words of each command in a page's blocks."""
    lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run(words: list[str], codes: set[int] | None = None) -> str:
    """The output of a command, which runs in this process; also in the file behind a `>`."""
    words, target = (words[:-2], words[-1]) if ">" in words else (words, "")
    done = CliRunner().invoke(app, words)
    assert done.exit_code in (codes or {0}), f"{words}: {done.stderr}{done.exception!r}"
    if target:
        Path(target).write_text(done.stdout, encoding="utf-8")
    return " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the README's commands read, away from this checkout's results."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(root / "configs", folder / "configs")
    shutil.copytree(root / "pipeline" / "data" / "sample", folder / "pipeline" / "data" / "sample")
    return folder


@pytest.fixture(autouse=True)
def docs(root: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pages; the hub is out of reach, and the working directory is the copy."""
    be_offline(monkeypatch)
    keep_stderr(monkeypatch)
    monkeypatch.chdir(copy)
    return root / "docs"


@pytest.fixture
def place(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the sample as one's own collection, `my-data`."""
    shutil.copytree(copy / "pipeline" / "data" / "sample", tmp_path / "my-data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cached(copy: Path, place: Path) -> Path:
    """The same, with the cache of the README's commands: what they encoded is not encoded again.

    Its files are hard links: a cache behind a symbolic link is not read for a result.
    """
    (copy / "indexes").mkdir(exist_ok=True)
    shutil.copytree(copy / "indexes", place / "indexes", copy_function=os.link)
    return place


def test_the_readme_runs_as_shown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = commands(root / "README.md")
    assert {command[0] for command in shown} == SCRIPTS | {".venv/bin/benchmarco"}
    assert all(os.access(root / script, os.X_OK) for script in SCRIPTS)
    outputs = [run(command[1:]) for command in shown if command[0] not in SCRIPTS]
    assert sum("ndcg@10" in output for output in outputs) >= 5
    (snippet,) = blocks(root / "README.md", "python")
    exec(snippet, {})
    printed = capsys.readouterr().out.splitlines()
    assert float(printed[0]) == pytest.approx(0.8633, abs=5e-4)
    assert "'ndcg@10'" in printed[1]


def test_commands_of_other_pages_run_as_shown(docs: Path) -> None:
    pages = [path for path in sorted(docs.glob("*.md")) if path.stem not in OTHERS]
    shown = [words[1:] for page in pages for words in commands(page) if words[0].endswith("benchmarco")]
    ours = [words for words in shown if words[0] not in SLOW and not BROUGHT.search(" ".join(words))]
    assert len(ours) >= 20
    for words in dict.fromkeys(map(tuple, ours)):
        run(list(words))


def test_snippets_about_python_run_as_shown(
    docs: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "c.yaml").rename(workplace / "mine.yaml")
    (workplace / "pipeline" / "data").mkdir(parents=True)
    (workplace / "pipeline" / "data" / "sample").symlink_to(workplace / "data")
    monkeypatch.chdir(workplace)
    names: dict[str, Any] = {}
    monkeypatch.setitem(MEASURES, "mean_grade", Definition(len, added="here"))  # is removed in the end
    for snippet in blocks(docs / "api.md", "python"):
        exec(snippet, names)
    shown = capsys.readouterr().out
    expected = ["whole: 114 queries, 345 passages", "(114, 2)", "mean_grade@2", "Did you mean 'precision'"]
    assert [part for part in expected if part not in shown] == []
    assert "data" in names["whole"].reused


def test_the_first_decision_is_made_as_shown(docs: Path, cached: Path) -> None:
    page = docs / "first-decision.md"
    for config in blocks(page, "yaml"):
        Path(config.split()[1]).write_text(config, encoding="utf-8")
    said = " ".join(run(words[1:]) for words in commands(page))
    files, *printed = blocks(page, "text")
    assert all(Path(line.split()[0]).is_file() for line in files.splitlines())
    shown = [each for block in printed for each in block.split("\n\n")]
    assert [each for each in shown if " ".join(each.split()) not in said] == []
    assert "--margin 0.01" in page.read_text(encoding="utf-8")
    assert "unless one query more loses everything" in run([*commands(page)[-1][1:-1], "0.01"])
    assert Path("decision.html").is_file()


def test_smaller_vectors_are_compared_as_shown(docs: Path, cached: Path) -> None:
    page = docs / "smaller-vectors.md"
    (config,) = blocks(page, "yaml")
    Path(config.split()[1]).write_text(config, encoding="utf-8")
    for words in commands(page):
        run(words[1:], VERDICTS.get(words[1]))
    assert Path("sizes.html").is_file()


def test_what_a_model_costs_is_measured_as_shown(docs: Path, cached: Path) -> None:
    page = docs / "afford.md"
    (config,) = blocks(page, "yaml")
    Path(config.split()[1]).write_text(config, encoding="utf-8")
    *_, compared = [run(words[1:]) for words in commands(page)]
    assert "Within p95 <= 20 ms and memory <= 500 MB" in compared
    for name in ("words", "minilm", "minilm-128"):
        record = read_json(cached / "results" / name / "latency.json")
        assert [load["concurrency"] for load in record["loads"]] == [1, 4]
    assert "What one query costs" in Path("afford.html").read_text(encoding="utf-8")


def judge(place: Path) -> None:
    """In place of the people who judge."""
    header, *rows = (place / "pool.tsv").read_text(encoding="utf-8").splitlines()
    grade = header.split("\t").index("grade")
    cells = [row.split("\t") for row in rows]
    lines = ["\t".join([*row[:grade], "1", *row[grade + 1 :]]) for row in cells]
    (place / "pool.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


def test_systems_without_judgments_are_compared_as_shown(docs: Path, cached: Path) -> None:
    page = docs / "judge.md"
    shutil.rmtree("my-data/qrels")
    with contextlib.closing(ChatServer(lambda query, passage: str(len(query.split()) % 3))) as server:
        config = blocks(page, "yaml")[0].replace("http://localhost:8000/v1", server.url)
        Path("a.yaml").write_text(config, encoding="utf-8")
        other = config.replace("name: a\n", "name: b\n").replace("name: all-minilm-l6-v2", "backend: bm25")
        Path("b.yaml").write_text(other, encoding="utf-8")
        for words in commands(page):
            output = run(words[1:])
            if words[1] == "pool":
                judge(cached)
    assert "people's and judge's" in output
    assert Path("judged.html").is_file()


def change_weights(file: Path) -> None:
    """Make a model another one, with vectors not far from the old ones."""
    from safetensors.numpy import load_file, save_file

    weights = load_file(file)
    name = "embeddings.word_embeddings.weight"
    noise = np.random.default_rng(0).normal(0, 0.01, weights[name].shape)
    save_file({**weights, name: weights[name] + noise.astype(np.float32)}, file, {"format": "pt"})


def embed(place: Path) -> None:
    """In place of the user's own script: it reads the exported texts, in their order."""
    for role in ("passages", "queries"):
        texts = (place / "texts" / f"{role}.jsonl").read_text(encoding="utf-8").splitlines()
        vectors = np.random.default_rng(0).normal(size=(len(texts), 16)).astype(np.float32)
        np.save(place / f"{role}.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


STAND_INS: dict[str, Callable[[Path], object]] = {
    "cp -r results/mine baseline": lambda place: shutil.copytree(place / "results/mine", place / "baseline"),
    "python embed.py": embed,
    "$EDITOR pool.tsv": judge,
}
"""What is done in place of a command that is not benchmarco's."""


@pytest.fixture
def small(place: Path, local_run: Path, bge_folder: Path) -> Path:
    """The same, where texts are those that `embedding_server` knows, with models, a run and training data."""
    known = read_json(local_run / "vectors.json")
    for name in ("corpus", "queries"):
        file = place / "my-data" / f"{name}.jsonl"
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        kept = [line for line in lines if f"{line.get('title', '')} {line['text']}".strip() in known]
        file.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    qrels = place / "my-data" / "qrels" / "test.tsv"
    header, *rows = qrels.read_text(encoding="utf-8").splitlines()
    asked = {line["_id"] for line in kept}
    kept_rows = [row for row in rows if row.split("\t")[0] in asked]
    qrels.write_text("\n".join([header, *kept_rows]) + "\n", encoding="utf-8")
    for name in ("tuned", "candidate"):
        shutil.copytree(bge_folder, place / "models" / name)
    change_weights(place / "models" / "tuned" / "model.safetensors")
    quantize(export(place / "models" / "tuned", place / "models" / "tuned" / "onnx" / "model.onnx"))
    train_adapter(place / "models" / "tuned", place / "models" / "lora")
    shutil.copy(local_run / "results" / "local" / "run.trec", place / "theirs.trec")
    shutil.copy(place / "my-data" / "queries.jsonl", place / "train.jsonl")
    return place


def run_workflow(file: Path, place: Path) -> None:
    """Run the commands of a workflow as GitHub does, but for the installation; any verdict is an answer."""
    steps = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]["gate"]["steps"]
    install, *commands = [step["run"] for step in steps if "run" in step]
    assert install == "pip install benchmarco"
    ours = f'benchmarco() {{ {shlex.quote(sys.executable)} -m pipeline "$@"; }}'
    summary = place / "summary.md"
    done = subprocess.run(
        ["bash", "-ec", "\n".join([ours, *commands])], cwd=place, capture_output=True, text=True, check=False,
        env={**os.environ, "GITHUB_STEP_SUMMARY": str(summary)},
    )  # fmt: skip
    assert done.returncode in VERDICTS["gate"], done.stderr
    assert "| ndcg@10 |" in summary.read_text(encoding="utf-8")


def test_how_do_i_runs_in_the_page_s_order(
    docs: Path,
    small: Path,
    bge_folder: Path,
    m3_folder: Path,
    reranker: Callable[[str], Path],
    embedding_server: Any,
) -> None:
    page = (docs / "how-do-i.md").read_text(encoding="utf-8")
    assert page.count("\n## ") >= 15
    here = {  # what a reader has elsewhere
        "BAAI/bge-small-en-v1.5": bge_folder,
        "{name: all-minilm-l6-v2}": "{name: models/candidate}",
        "BAAI/bge-m3": m3_folder,
        "BAAI/bge-reranker-base": reranker("xlm_roberta"),
        "http://localhost:8080/v1": embedding_server.url,
        "name: my-model": "name: all-minilm-l6-v2",
    }
    for elsewhere, local in here.items():
        assert elsewhere in page
        page = page.replace(elsewhere, str(local))
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if language == "yaml":
            path = small / block.split()[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block, encoding="utf-8")
            if ".github" in path.parts:
                run_workflow(path, small)
        elif language == "python":
            exec(block, {})
        else:
            assert language == "bash"
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                if words[0] == "benchmarco":
                    run(words[1:], VERDICTS.get(words[1]))
                else:
                    (stand_in,) = (do for start, do in STAND_INS.items() if line.startswith(start))
                    stand_in(small)
