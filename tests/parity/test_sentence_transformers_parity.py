"""Our vectors against sentence-transformers' own encode, for the kinds of models it loads."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding
from tokenizers import Tokenizer
from workplaces import read_json

from pipeline.core.records import Float32

Encode = Callable[..., Float32]
Lowest = Callable[[Any, Any], float]
ST = "sentence-transformers"


def peer(folder: Path) -> Any:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def chain_folder(tmp_path_factory: pytest.TempPathFactory, bge_folder: Path) -> Path:
    """Transformer, two poolings side by side, Dense and Normalize; with prompts and a default one."""
    folder = tmp_path_factory.mktemp("models") / "chain"
    first = Transformer(str(bge_folder))
    model = SentenceTransformer(
        modules=[first, Pooling(128, ("cls", "max")), Dense(256, 40), Normalize()],
        prompts={"query": "find: ", "document": "text: ", "passage": "unread: ", "other": "never: "},
        default_prompt_name="other",
        device="cpu",
    )
    model.save(str(folder), create_model_card=False)
    return folder


def test_minilm_with_its_own_length_in_fp32_and_bf16(
    few_texts: list[str], encode: Encode, lowest_cosine: Lowest, minilm_folder: Path
) -> None:
    model = peer(minilm_folder)
    reference = model.encode(few_texts)
    full = encode(few_texts, name="all-minilm-l6-v2", backend=ST)
    half = encode(few_texts, name="all-minilm-l6-v2", backend=ST, precision="bf16")
    assert full.dtype == half.dtype == np.float32
    assert np.abs(full - reference).max() < 1e-5
    assert lowest_cosine(half, reference) > 0.9995
    in_half = model.to(torch.bfloat16).encode(few_texts, convert_to_tensor=True)
    assert lowest_cosine(half, in_half.float().numpy()) > 0.9999


def test_every_module_of_a_chain_runs_prompts_are_the_role_s_and_vectors_are_cut(
    few_texts: list[str], encode: Encode, lowest_cosine: Lowest, chain_folder: Path
) -> None:
    model, settings = peer(chain_folder), {"name": chain_folder, "backend": ST}
    queries = encode(few_texts, "queries", **settings)
    passages = encode(few_texts, "passages", **settings)
    assert queries.shape[1] == 40
    assert lowest_cosine(queries, model.encode_query(few_texts)) > 0.99999
    assert lowest_cosine(passages, model.encode_document(few_texts)) > 0.99999
    assert lowest_cosine(queries, passages) < 0.999  # a prompt does something
    vectors = encode(few_texts, "queries", **settings, truncate_dim=16)
    reference = model.encode_query(few_texts, truncate_dim=16, normalize_embeddings=True)
    assert np.abs(vectors - reference).max() < 1e-5


def test_vectors_that_are_not_normalized_are_those_of_the_other_backends(
    few_texts: list[str], encode: Encode, minilm_folder: Path
) -> None:
    assert "Normalize" in (minilm_folder / "modules.json").read_text(encoding="utf-8")
    raw = {"name": "all-minilm-l6-v2", "normalize": False, "passage_max_length": 64}
    vectors = encode(few_texts, backend=ST, **raw)
    assert np.linalg.norm(vectors, axis=1).min() > 1.5
    assert np.abs(vectors - encode(few_texts, backend="flag", **raw)).max() < 1e-4


def test_a_folder_that_only_declares_its_pooling(
    few_texts: list[str], encode: Encode, lowest_cosine: Lowest, bge_folder: Path
) -> None:
    reference = SentenceTransformer(modules=[Transformer(str(bge_folder)), Pooling(128, "cls")], device="cpu")
    vectors = encode(few_texts, name=bge_folder, backend=ST)
    assert lowest_cosine(vectors, reference.encode(few_texts)) > 0.99999


SHAPE = {
    "vocab_size": 30522, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64,
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "T5Encoder": {
        "vocab_size": 30522,
        "d_model": 32,
        "d_ff": 64,
        "d_kv": 16,
        "num_layers": 2,
        "num_heads": 2,
    },
    "MPNet": {**SHAPE, "max_position_embeddings": 514},
    "Qwen2": {**SHAPE, "num_key_value_heads": 1},
    "NomicBert": SHAPE,
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_architectures(
    kind: str,
    few_texts: list[str],
    encode: Encode,
    lowest_cosine: Lowest,
    minilm_folder: Path,
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind.removesuffix('Encoder')}Config")(**OTHERS[kind])
    getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path)
    if kind == "Qwen2":  # a causal model, whose last token is taken
        described = read_json(tmp_path / "config.json")
        described["architectures"] = ["Qwen2ForCausalLM"]
        (tmp_path / "config.json").write_text(json.dumps(described), encoding="utf-8")
        tokenizer = transformers.Qwen2Tokenizer().train_new_from_iterator(few_texts, 600)
        tokenizer.model_max_length = 512
        tokenizer.save_pretrained(tmp_path)  # transformers takes no other class
    else:
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
            shutil.copy(minilm_folder / name, tmp_path)
    texts = [text for text in few_texts if text]
    vectors = encode(texts, name=tmp_path, backend=ST)
    assert lowest_cosine(vectors, peer(tmp_path).encode(texts)) > 0.99999


def test_a_static_model(
    few_texts: list[str], encode: Encode, lowest_cosine: Lowest, minilm_folder: Path, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.from_file(str(minilm_folder / "tokenizer.json"))
    tokenizer.no_truncation()
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu")
    model.save(str(tmp_path / "static"), create_model_card=False)
    texts = few_texts[:12]
    vectors = encode(texts, name=tmp_path / "static", backend=ST)
    assert lowest_cosine(vectors, model.encode(texts)) > 0.99999
