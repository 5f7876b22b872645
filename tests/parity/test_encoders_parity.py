"""Our vectors against FlagEmbedding's own encoder, on the built-in collection."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline.config import BACKENDS, ModelSettings
from pipeline.core.display import silent
from pipeline.core.records import Embeddings, Float32
from pipeline.encoders import Role, Usage, open_encoder, resolve, vector_form
from pipeline.storage.store import Store
from pipeline.storage.vector_shards import read_rows

pytestmark = pytest.mark.usefixtures("quick_conversion")

EXACT = pytest.mark.parametrize(
    ("backend", "precision", "near"),
    [("flag", "fp32", 1e-5), ("openvino", "fp32", 1e-5), ("native", "int16", 2e-4)],
    ids=["flag", "openvino", "native"],
)
INSTRUCTION = "Represent this sentence for searching relevant passages:"


@pytest.fixture(scope="module")
def texts(passages: list[str]) -> list[str]:
    return [*passages[:40], "", "word", "Größe 數字 🙂", "long " * 700]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


def ours(config: ModelSettings, texts: list[str], store: Store, role: Role = "passages") -> Float32:
    with silent("", None, "") as bar:
        model = resolve(config)
        vectors = open_encoder(config, model, store).encode(texts, role, Usage(), bar)
        return read_rows(Embeddings((vectors,), vector_form(config, model)), 0, len(texts))


def flag_model(folder: Path, pooling: str, instruction: str | None = None) -> object:
    from FlagEmbedding import FlagModel

    return FlagModel(
        str(folder),
        pooling_method=pooling,
        query_instruction_for_retrieval=instruction,
        use_fp16=False,
        devices=["cpu"],
        batch_size=32,
    )


def cosines(one: Float32, two: Float32) -> Float32:
    return (one * two).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1))


@pytest.fixture(scope="module")
def of_minilm(texts: list[str], minilm_folder: Path) -> Float32:
    """FlagModel's vectors."""
    vectors: Float32 = flag_model(minilm_folder, "mean").encode_corpus(texts)  # type: ignore[attr-defined]
    return vectors


@EXACT
def test_minilm(
    backend: str, precision: str, near: float, texts: list[str], store: Store, of_minilm: Float32
) -> None:
    config = BACKENDS.make(name="all-minilm-l6-v2", backend=backend, precision=precision)
    vectors = ours(config, texts, store)
    assert vectors.dtype == np.float32
    assert cosines(vectors, of_minilm).min() > 0.99999
    assert np.abs(vectors - of_minilm).max() < near


@EXACT
def test_bge_queries_with_the_default_instruction(
    backend: str, precision: str, near: float, texts: list[str], store: Store, bge_folder: Path
) -> None:
    reference = flag_model(bge_folder, "cls", INSTRUCTION).encode_queries(texts)  # type: ignore[attr-defined]
    config = BACKENDS.make(name=str(bge_folder), backend=backend, precision=precision)
    assert cosines(ours(config, texts, store, "queries"), reference).min() > 0.99999


@EXACT
def test_lengths_are_cut_and_norms_kept_as_flagembedding_does(
    backend: str, precision: str, near: float, texts: list[str], store: Store, bge_folder: Path
) -> None:
    from FlagEmbedding import FlagModel

    model = FlagModel(
        str(bge_folder), use_fp16=False, devices=["cpu"], normalize_embeddings=False, passage_max_length=16
    )
    config = BACKENDS.make(
        name=str(bge_folder), backend=backend, precision=precision, normalize=False, passage_max_length=16
    )
    assert np.abs(ours(config, texts, store) - model.encode_corpus(texts)).max() < 10 * near


@pytest.mark.parametrize("backend", ["flag", "openvino"])
def test_bf16_stays_close(backend: str, texts: list[str], store: Store) -> None:
    full = ours(BACKENDS.make(name="all-minilm-l6-v2", backend=backend), texts, store)
    half = ours(BACKENDS.make(name="all-minilm-l6-v2", backend=backend, precision="bf16"), texts, store)
    assert half.dtype == np.float32
    assert cosines(half, full).min() > 0.999


@pytest.mark.parametrize("backend", ["flag", "openvino"])
def test_batch_size_moves_no_vector(backend: str, texts: list[str], store: Store) -> None:
    default = ours(BACKENDS.make(name="all-minilm-l6-v2", backend=backend), texts[:30], store)
    small = ours(BACKENDS.make(name="all-minilm-l6-v2", backend=backend, batch_size=3), texts[:30], store)
    assert np.abs(default - small).max() < 1e-5


def test_a_folder_s_name_shapes_no_vector(
    texts: list[str], store: Store, bge_folder: Path, tmp_path: Path
) -> None:
    named = tmp_path / "bge-m3"  # FlagEmbedding has a class of its own for models of that name
    named.symlink_to(bge_folder)
    config = BACKENDS.make(name=str(bge_folder), backend="flag", query_instruction="")
    same = BACKENDS.make(name=str(named), backend="flag", query_instruction="")
    assert resolve(config).recipe("queries") == resolve(same).recipe("queries")
    assert (ours(config, texts[:20], store) == ours(same, texts[:20], store)).all()


@pytest.mark.parametrize(
    ("settings", "backend"),
    [
        ({"do_lower_case": False}, "flag"),
        ({"strip_accents": False}, "flag"),
        ({"truncation_side": "left"}, "flag"),
        ({"do_lower_case": False, "strip_accents": False, "truncation_side": "left"}, "openvino"),
    ],
    ids=["do_lower_case", "strip_accents", "truncation_side", "all three"],
)
def test_tokens_are_those_of_the_tokenizer_that_transformers_makes(
    settings: dict[str, object], backend: str, store: Store, bge_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    path = folder / "tokenizer_config.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**described, **settings}), encoding="utf-8")
    texts = ["Some WORDS", "naïve Größe", "a b c " * 200 + "last"]
    reference = flag_model(folder, "cls").encode_corpus(texts)  # type: ignore[attr-defined]
    vectors = ours(BACKENDS.make(name=str(folder), backend=backend), texts, store)
    assert np.abs(vectors - reference).max() < 1e-5


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_padding_beyond_a_window_of_attention_shapes_no_vector(
    precision: str, texts: list[str], store: Store, bge_folder: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import ModernBertConfig, ModernBertModel

    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=30522, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64,
        local_attention=16, global_attn_every_n_layers=2, pad_token_id=0, bos_token_id=101, eos_token_id=102,
        cls_token_id=101, sep_token_id=102,
    )  # fmt: skip
    ModernBertModel(config).save_pretrained(folder)
    reference = flag_model(folder, "cls").encode_corpus(texts)  # type: ignore[attr-defined]
    vectors = ours(BACKENDS.make(name=str(folder), backend="openvino", precision=precision), texts, store)
    assert cosines(vectors, reference).min() > (0.99999 if precision == "fp32" else 0.999)
