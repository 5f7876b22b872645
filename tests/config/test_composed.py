"""Configs of retrievers made of others: what `--set` reaches, what fits together, what messages say."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import InputError, load_config, load_configs

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
    assert config.first_stage.rerank is None
    assert config.first_stage.fuse == config.fuse


def test_a_sweep_reaches_a_part(path: Path) -> None:
    loaded = load_configs(path, ["sweep={fuse.of.1.model.k1: [0.9, 1.2], rerank.depth: [10, 20]}"])
    found = [(one.parts[0].model.k1, one.rerank.depth) for one in loaded]
    assert found == [(0.9, 10), (0.9, 20), (1.2, 10), (1.2, 20)]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("fuse.of.2.model.precsion=bf16", "unknown key 'fuse.of.2.model.precsion'.*Did you mean 'precision'"),
        ("fuse.of.3.model.precision=bf16", "'3' in 'fuse.of.3.model.precision' .*Allowed: 1 to 2"),
        ("fuse.of.2.model.backend=bm26", "'fuse.of.2.model.backend' is 'bm26'.*Did you mean 'bm25'"),
        ("fuse.of.1=5", "'fuse.of.1' is 5. Allowed: a section"),
        ("fuse.of=[]", "'fuse.of' is \\[\\].*Allowed: 2 or more"),
        ("fuse.of.1.index.factory=HNSW8", "fuse.of, number 1: backend 'bm25' is searched on the CPU"),
        ("index.factory=HNSW8", "each of the retrievers in fuse.of has its own index"),
        ("fuse.method=weighted", "weighted needs weights: give 2"),
        ("fuse.weights=[1]", "rrf of 2 rankings takes 2 weights, and 1 are given"),
        ("model.backend=bm25", "'model' and 'fuse' are both given"),
        ("fuse=null", "neither 'model' nor 'fuse' is given"),
        ("rerank.depth=2000", "rerank.depth is 2,000, and search.top_k keeps 1,000"),
        ("rerank.backend=sentence-transformer", "Did you mean 'sentence-transformers'"),
    ],
)
def test_a_mistake_is_named_where_it_is(path: Path, setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_config(path, [setting])
