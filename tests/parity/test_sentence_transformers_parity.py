"""Our vectors against sentence-transformers' own encode, for the kinds of models it loads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

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


def test_minilm_with_its_own_length(few_texts: list[str], encode: Encode, minilm_folder: Path) -> None:
    vectors = encode(few_texts, name="all-minilm-l6-v2", backend=ST)
    assert vectors.dtype == np.float32
    assert np.abs(vectors - peer(minilm_folder).encode(few_texts, batch_size=4)).max() < 1e-5


def test_bf16(few_texts: list[str], encode: Encode, lowest_cosine: Lowest, chain_folder: Path) -> None:
    model = peer(chain_folder)
    reference = model.encode_document(few_texts)
    half = encode(few_texts, name=chain_folder, backend=ST, precision="bf16")
    assert half.dtype == np.float32
    assert lowest_cosine(half, reference) > 0.9995
    in_half = model.to(torch.bfloat16).encode_document(few_texts, convert_to_tensor=True)
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
