"""Every config, command and snippet of docs/how-do-i.md, run in its order on small data, offline."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from pipeline.cli import app

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VERDICTS = {"gate": {0, 3, 4}}
"""Exit codes other than 0 that are an answer, by command."""


@pytest.fixture
def place(
    root: Path, local_run: Path, bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A working directory with what the page calls one's own: data, models, a run, training data."""
    known = json.loads((local_run / "vectors.json").read_text(encoding="utf-8"))
    sample, own = root / "pipeline" / "data" / "sample", tmp_path / "my-data"
    (own / "qrels").mkdir(parents=True)
    ids = {part: copy_known(sample / part, own / part, known) for part in ("corpus.jsonl", "queries.jsonl")}
    header, *rows = (sample / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    kept = [row for row in rows if row.split("\t")[0] in ids["queries.jsonl"]]
    (own / "qrels" / "test.tsv").write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
    for name in ("tuned", "candidate"):
        shutil.copytree(bge_folder, tmp_path / "models" / name)
    change_weights(tmp_path / "models" / "tuned" / "model.safetensors")
    shutil.copy(local_run / "results" / "local" / "run.trec", tmp_path / "theirs.trec")
    shutil.copy(own / "queries.jsonl", tmp_path / "train.jsonl")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def copy_known(source: Path, target: Path, known: dict[str, Any]) -> set[str]:
    """Copy the lines whose text is known; their ids."""
    lines = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    kept = [line for line in lines if f"{line.get('title', '')} {line['text']}".strip() in known]
    target.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    return {line["_id"] for line in kept}


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
        lines = (place / "texts" / f"{role}.jsonl").read_text(encoding="utf-8").splitlines()
        vectors = np.random.default_rng(0).normal(size=(len(lines), 16)).astype(np.float32)
        np.save(place / f"{role}.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def judge(place: Path) -> None:
    """In place of the people who judge."""
    header, *rows = (place / "pool.tsv").read_text(encoding="utf-8").splitlines()
    assert rows[0].endswith("\t")
    (place / "pool.tsv").write_text("\n".join([header, *(f"{row}1" for row in rows)]), encoding="utf-8")


OTHERS: dict[str, Callable[[Path], object]] = {
    "cp -r results/mine baseline": lambda place: shutil.copytree(place / "results/mine", place / "baseline"),
    "python embed.py": embed,
    "$EDITOR pool.tsv": judge,
}
"""What the test does in place of a command that is not benchmarco's."""


@pytest.mark.usefixtures("quick_conversion")
def test_configs_commands_and_snippets_run_in_the_page_s_order(
    root: Path,
    place: Path,
    bge_folder: Path,
    m3_folder: Path,
    reranker: Callable[[str], Path],
    embedding_server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # it would keep this test's stderr for ever
    page = (root / "docs" / "how-do-i.md").read_text(encoding="utf-8")
    assert page.count("\n## ") >= 20
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
    for language, block in BLOCK.findall(page):
        if language == "yaml":
            (place / block.split()[1]).write_text(block, encoding="utf-8")
        elif language == "python":
            exec(block, {})
        else:
            assert language == "bash"
            for line in block.splitlines():
                carry_out(shlex.split(line, comments=True), place)


def carry_out(words: list[str], place: Path) -> None:
    """Run a command of benchmarco in this process, or what stands for another one."""
    if words[0] != "benchmarco":
        (stands_for,) = (do for start, do in OTHERS.items() if " ".join(words).startswith(start))
        stands_for(place)
        return
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code in VERDICTS.get(words[1], {0}), f"{words}: {done.stderr}{done.exception!r}"
