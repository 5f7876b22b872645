"""A benchmark with an approximate index of token vectors: what it needs, makes and keeps."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.api import run_benchmark
from pipeline.config.files import load_config
from pipeline.core import extras
from pipeline.core.errors import InputError
from pipeline.results.folder import read_result
from pipeline.runner import Benchmark
from pipeline.storage.artifacts import Draft
from pipeline.storage.store import Store

CONFIG = """
name: t
data: {source: beir, path: SAMPLE}
model: {backend: precomputed, output: multivector, passages: p.npz, queries: q.npz}
index: {factory: PLAID}
search: {top_k: 20}
evaluate: {measures: [ndcg@10]}
"""


@pytest.fixture
def workplace(tmp_path: Path, root: Path) -> Path:
    """A config, and token vectors of the sample's texts, drawn at random around a few points."""
    sample = root / "pipeline" / "data" / "sample"
    (tmp_path / "c.yaml").write_text(CONFIG.replace("SAMPLE", str(sample)), encoding="utf-8")
    points = np.random.default_rng(9).standard_normal((40, 16))
    for seed, (name, file) in enumerate([("p", "corpus.jsonl"), ("q", "queries.jsonl")]):
        generator = np.random.default_rng(seed)
        texts = len((sample / file).read_text(encoding="utf-8").splitlines())
        ends = np.cumsum(generator.integers(1, 9, texts))
        vectors = points[generator.integers(0, 40, ends[-1])] + generator.standard_normal((ends[-1], 16)) / 3
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        np.savez(tmp_path / f"{name}.npz", vectors=vectors.astype(np.float32), ends=ends)
    return tmp_path


def config(folder: Path, *settings: str) -> Any:
    return load_config(
        folder / "c.yaml", [f"cache={folder / 'indexes'}", f"output={folder / 'results'}", *settings]
    )


def made(folder: Path, *settings: str) -> list[str]:
    """The stages that one run computes."""
    rows = run_benchmark(config(folder, *settings)).record.stages
    assert [row.stage for row in rows] == ["data", "passages", "queries", "index", "search", "evaluate"]
    return [row.stage for row in rows if not row.reused]


def hits(folder: Path) -> dict[tuple[str, str], float]:
    lines = (folder / "results" / "t" / "run.trec").read_text(encoding="utf-8").splitlines()
    return {(query, passage): float(score) for query, _, passage, _, score, _ in map(str.split, lines)}


def install(monkeypatch: pytest.MonkeyPatch, plaid: str | None, torch: str) -> None:
    """Let versions be installed, as far as their metadata say."""
    version = metadata.version
    there = {"fast-plaid": plaid, "torch": torch}

    def say(name: str) -> str:
        found = there.get(name, "")
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found or version(name)

    monkeypatch.setattr(metadata, "version", say)
    monkeypatch.setattr(metadata, "requires", lambda name: ["joblib>=1", "torch==2.11.0"])
    monkeypatch.setattr(extras, "is_installed", lambda package: plaid is not None)


OTHER = "fast-plaid 1.7.0.2110 is built for torch 2.11.0, and torch here is 2.13.0. Allowed: torch 2.11.0"


@pytest.mark.parametrize(
    ("plaid", "torch", "said"),
    [
        (
            None,
            "2.13.0",
            "needs the package fast_plaid, which is not installed. Run python -m venv .venv-plaid &&",
        ),
        ("1.7.0.2110", "2.13.0+cpu", OTHER),
    ],
)
def test_a_package_that_is_missing_or_built_for_another_torch_is_refused_before_work(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, plaid: str | None, torch: str, said: str
) -> None:
    install(monkeypatch, plaid, torch)
    imported = "fast_plaid" in sys.modules
    with pytest.raises(InputError) as refused:
        run_benchmark(config(workplace))
    assert said in str(refused.value)
    assert ".venv-plaid/bin/pip install '.[plaid]'" in str(refused.value)
    assert ("fast_plaid" in sys.modules) == imported
    assert not list(workplace.glob("indexes/*/*"))


def test_the_plan_is_known_without_the_package(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None, "2.13.0")
    plan = Benchmark(config(workplace), Store(workplace / "indexes")).plan()
    assert [row["stage"] for row in plan] == ["data", "passages", "queries", "index", "search", "evaluate"]


def test_it_is_measured_against_exact_search_and_reused(fast_plaid: str, workplace: Path) -> None:
    assert len(made(workplace)) == 6
    record = read_result(workplace / "results" / "t").record
    assert record.against_exact is not None
    assert record.against_exact.overlap["20"] > 0.8
    assert record.index is not None
    assert record.index.label == "PLAID"
    assert record.index.disk_bytes == record.stage("index").bytes
    assert made(workplace) == []
    assert made(workplace, "search.parameters={n_ivf_probe: 4}") == ["search", "evaluate"]
    assert made(workplace, "index.plaid.bits=2") == ["index", "search", "evaluate"]
    assert read_result(workplace / "results" / "t").record.index.label == "PLAID bits=2"
    exact = run_benchmark(config(workplace, "index.factory=Flat")).record
    assert [row.stage for row in exact.stages if not row.reused] == ["evaluate"]  # searched already
    scores = hits(workplace)
    assert made(workplace, "search.rescore=10") == ["search", "evaluate"]
    found = hits(workplace)
    shared = found.keys() & scores.keys()
    assert len(shared) > 0.8 * len(scores)
    assert {pair: found[pair] for pair in shared} == {pair: scores[pair] for pair in shared}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_damage_is_noticed_and_an_interrupted_index_is_made_anew(
    fast_plaid: str, workplace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replaced: list[str] = []
    save = Draft.file

    def interrupted(draft: Draft, name: str) -> Any:
        if draft.folder.parent.name == "index":
            replaced.append(name)
            if len(replaced) == 3:
                raise KeyboardInterrupt
        return save(draft, name)

    monkeypatch.setattr(Draft, "file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made(workplace)
    monkeypatch.undo()
    (folder,) = (workplace / "indexes" / "index").iterdir()
    assert not (folder / "manifest.json").exists()
    assert made(workplace) == ["queries", "index", "search", "evaluate"]
    found = hits(workplace)
    assert not [path for path in folder.iterdir() if path.is_dir() or path.suffix in (".tmp", ".lock")]
    flip(folder / "merged_residuals.npy")
    for later in ("search", "evaluate"):
        for path in (workplace / "indexes" / later).glob("*/manifest.json"):
            path.unlink()
    assert "index" in made(workplace)
    assert "damaged: merged_residuals.npy; recomputing it" in caplog.text
    assert hits(workplace) == found
