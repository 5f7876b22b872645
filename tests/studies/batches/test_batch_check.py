"""Whether the batch matters: `batches CONFIG`, for models that run here and on a server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_server import EmbeddingServer
from workplaces import benchmarco, document

CONFIG = """
name: batches
data: {source: sample, queries: 30, corpus: 100}
model: {backend: native, name: all-minilm-l6-v2}
evaluate: {measures: [ndcg@10, mrr@10]}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(f"{CONFIG}cache: {tmp_path}/indexes\noutput: {tmp_path}/results\n", encoding="utf-8")
    return path


def examined(config: Path, *settings: str) -> Any:
    arguments = [part for setting in settings for part in ("--set", setting)]
    return document("batches", config, *arguments)


def test_the_batch_does_not_matter_to_native(config: Path) -> None:
    shown = benchmarco("batches", config).stdout
    assert "all-minilm-l6-v2 by native: the batch does not matter" in shown


def test_the_batch_moves_vectors_of_torch_by_little(config: Path, bge_folder: Path) -> None:
    found = examined(config, "model.backend=flag", f"model.name={bge_folder}")
    assert found["texts"] == 64
    assert found["largest"] < 1e-5
    assert found["score"] < 1e-5
    assert max(found["measures"].values()) < 0.01


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    """Vectors that lean to one side for each other text of the request."""

    def embed(texts: list[str]) -> Any:
        own = np.array([np.random.default_rng(list(text.encode())).normal(size=32) for text in texts])
        return own + 0.2 * (len(texts) - 1)

    made = EmbeddingServer(embed)
    yield made
    made.close()


def test_a_server_whose_vectors_depend_on_the_request_is_found(config: Path, server: Any) -> None:
    served = f"model={{backend: http, name: all-minilm-l6-v2, url: '{server.url}', batch_size: "
    together = examined(config, served + "8}")
    assert together["largest"] > 0.05
    assert together["score"] > 0.05
    assert together["measures"]["ndcg@10"] > 0.05
    alone = examined(config, served + "1}")
    assert (alone["largest"], alone["score"], max(alone["measures"].values())) == (0, 0, 0)


@pytest.mark.parametrize("setting", ["model={backend: bm25}", "data={collections: {one: {source: sample}}}"])
def test_configs_without_one_dense_model_are_refused(config: Path, setting: str) -> None:
    said = benchmarco("batches", config, "--set", setting, code=2).output
    assert "nothing that one model encodes" in said
