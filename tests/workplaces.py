"""Runs of the config `c.yaml` of a folder, with cache and results beside it, and other processes."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import Result as Said
from scipy.sparse import csr_array, save_npz
from typer.testing import CliRunner

from pipeline import load_config, run_benchmark
from pipeline.cli import app
from pipeline.config import Config
from pipeline.core import silent
from pipeline.results import Result

BAR = silent("", None, "").__enter__()
"""Progress that nobody sees."""


def config(folder: Path, *settings: str) -> Config:
    return load_config(folder / "c.yaml", [f"cache={folder}/indexes", f"output={folder}/results", *settings])


def run(folder: Path, *settings: str, fresh: bool = False) -> Result:
    return run_benchmark(config(folder, *settings), fresh=fresh)


def process(
    folder: Path, *command: str, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python, or what begins with another program, in a folder; it must end with a code."""
    words = [sys.executable, *command] if command[0].startswith("-") else list(command)
    known = {**os.environ, "HF_HUB_OFFLINE": "1", **environment}
    done = subprocess.run(words, cwd=folder, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def benchmarco(*arguments: object, code: int | None = 0, **environment: str) -> Said:
    """What a command said in this process; it must end with a code, or None: with any."""
    done = CliRunner(env=environment).invoke(app, [str(argument) for argument in arguments])
    assert code in (None, done.exit_code), done.output
    return done


def document(*arguments: object, code: int = 0) -> Any:
    """What a command prints as JSON."""
    return json.loads(benchmarco(*arguments, "--json", code=code).stdout)


def on_one_line(done: Said) -> str:
    """What a command wrote, with a space in place of each end of a line."""
    return " ".join(done.output.split())


def hits(result: Path) -> list[tuple[str, str, float]]:
    """Query, passage and score of each hit of a result folder, in the order of its run file."""
    lines = (result / "run.trec").read_text(encoding="utf-8").splitlines()
    return [(query, passage, float(score)) for query, _, passage, _, score, _ in map(str.split, lines)]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def change_json(path: Path, /, **changes: Any) -> None:
    """Change values of a JSON file; two underscores in a name go into an object or a list."""
    content = read_json(path)
    for name, value in changes.items():
        *above, last = name.split("__")
        holder = content
        for key in above:
            holder = holder[int(key) if key.isdecimal() else key]
        holder[last] = value
    path.write_text(json.dumps(content), encoding="utf-8")
    seal(path.parent)


def seal(folder: Path) -> None:
    """Give the files of a result the checksums that a run would have written."""
    names = [path.name for path in folder.iterdir() if path.is_file() and path.name != "checksums.json"]
    if {"metrics.json", "suite.json"} & set(names):
        sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
        (folder / "checksums.json").write_text(json.dumps(sums), encoding="utf-8")


GIVEN_ROWS = "{backend: precomputed, output: KIND, passages: p.npz, queries: q.npz, shard_rows: 200}"


def give_rows(folder: Path, kind: str) -> None:
    """Make the config `c.yaml` in a folder one of another kind, `sparse` or `multivector`.

    Its model is then rows from files: counts of characters, or a vector for each character.
    """
    for name, source in (("p", "corpus"), ("q", "queries")):
        lines = (folder / "data" / f"{source}.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["text"][:24] for line in lines]
        if kind == "sparse":
            counts = [[text.count(chr(word)) for word in range(32, 127)] for text in texts]
            save_npz(folder / f"{name}.npz", csr_array(np.array(counts, np.float32)))
        else:
            tokens = np.frombuffer("".join(texts).encode("ascii", "replace"), np.uint8)
            vectors = np.random.default_rng(0).normal(size=(256, 16)).astype(np.float32)[tokens]
            np.savez(folder / f"{name}.npz", vectors=vectors, ends=np.cumsum([*map(len, texts)]))
    config = (folder / "c.yaml").read_text(encoding="utf-8")
    line = next(line for line in config.splitlines() if line.startswith("model:"))
    given = config.replace(line, f"model: {GIVEN_ROWS.replace('KIND', kind)}")
    (folder / "c.yaml").write_text(given, encoding="utf-8")
