"""Configs of retrievers made of others: what `--set` and a sweep reach."""

from pathlib import Path

import pytest

from pipeline import load_config, load_configs

TEXT = """
name: t
data: {source: sample}
fuse: {of: [{model: {backend: bm25}}, {model: {name: all-minilm-l6-v2}, search: {top_k: 200}}]}
rerank: {backend: sentence-transformers, name: owner/model}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_part_is_the_config_of_a_benchmark_of_its_own(path: Path) -> None:
    config = load_config(path, ["fuse.of.2.model.precision=bf16", "fuse.of.2.rerank={backend: "
                                "sentence-transformers, name: other/model}", "search.top_k=500"])  # fmt: skip
    first, second = config.parts
    assert (first.search.top_k, second.search.top_k) == (500, 200)
    assert second.model is not None
    assert second.model.precision == "bf16"
    assert (first.fuse, first.rerank) == (None, None)
    assert first.label == "bm25"
    assert second.label == "all-minilm-l6-v2, reranked by model"
    assert config.label == f"bm25 + {second.label}, reranked by model"


def test_a_sweep_reaches_a_part(path: Path) -> None:
    loaded = load_configs(path, ["sweep={fuse.of.1.model.k1: [0.9, 1.2], rerank.depth: [10, 20]}"])
    found = [(one.parts[0].model.k1, one.rerank.depth) for one in loaded]
    assert found == [(0.9, 10), (0.9, 20), (1.2, 10), (1.2, 20)]
