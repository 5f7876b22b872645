"""Our vectors against FlagEmbedding's own encoders: of BERT, of bge-m3, and of decoder-only models."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workplaces import read_json

from pipeline.core.records import Float32
from pipeline.models.card import WEB_SEARCH

Encode = Callable[..., Float32]
Lowest = Callable[[Any, Any], float]
NEAR = {"flag": 1e-5, "openvino": 1e-5, "native": 2e-4}
INSTRUCTION = "Represent this sentence for searching relevant passages:"
MINILM = "all-minilm-l6-v2"
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "MiniLM": ("minilm_folder", {"pooling_method": "mean"}, {"name": MINILM, "passage_max_length": 512}),
    "queries of BGE with the default instruction": (
        "bge_folder", {"pooling_method": "cls", "query_instruction_for_retrieval": INSTRUCTION}, {}
    ),
    "vectors of BGE of few tokens, not scaled": (
        "bge_folder",
        {"normalize_embeddings": False, "passage_max_length": 16},
        {"normalize": False, "passage_max_length": 16},
    ),
}  # fmt: skip


def flag_model(folder: Path, **settings: Any) -> Any:
    """FlagEmbedding's encoder, which pads few texts to the length of the longest."""
    from FlagEmbedding import FlagModel

    return FlagModel(str(folder), use_fp16=False, devices=["cpu"], batch_size=4, **settings)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, few_texts: list[str]) -> tuple[str, dict[str, Any], Any]:
    """The role of some texts, our settings, and FlagEmbedding's vectors."""
    fixture, theirs, ours = CASES[request.param]
    folder = request.getfixturevalue(fixture)
    model = flag_model(folder, **theirs)
    if "queries" in request.param:
        return "queries", {"name": folder, **ours}, model.encode_queries(few_texts)
    return "passages", {"name": folder, **ours}, model.encode_corpus(few_texts)


@pytest.mark.parametrize("backend", NEAR)
def test_vectors_are_those_of_flagembedding(
    backend: str,
    case: tuple[str, dict[str, Any], Any],
    few_texts: list[str],
    encode: Encode,
    lowest_cosine: Lowest,
) -> None:
    role, settings, expected = case
    precision = "int16" if backend == "native" else "fp32"
    vectors = encode(few_texts, role, backend=backend, precision=precision, **settings)
    assert vectors.dtype == np.float32
    assert lowest_cosine(vectors, expected) > 0.99999
    assert np.abs(vectors - expected).max() < NEAR[backend] * np.linalg.norm(expected, axis=1).max()


@pytest.mark.parametrize("backend", ["flag", "openvino"])
def test_bf16_stays_close_and_a_batch_size_moves_no_vector(
    backend: str, few_texts: list[str], encode: Encode, lowest_cosine: Lowest, bge_folder: Path
) -> None:
    settings = {"name": bge_folder, "backend": backend}
    full = encode(few_texts, **settings)
    half = encode(few_texts, **settings, precision="bf16")
    assert half.dtype == np.float32
    assert lowest_cosine(half, full) > 0.999
    assert np.abs(encode(few_texts, **settings, batch_size=7) - full).max() < 1e-5


def test_a_folder_s_name_shapes_no_vector(
    few_texts: list[str], encode: Encode, bge_folder: Path, tmp_path: Path
) -> None:
    named = tmp_path / "bge-m3"  # FlagEmbedding has a class of its own for models of that name
    named.symlink_to(bge_folder)
    assert np.array_equal(encode(few_texts, name=bge_folder), encode(few_texts, name=named))


@pytest.mark.parametrize("backend", ["flag", "openvino"])
def test_tokens_are_those_of_the_tokenizer_that_transformers_makes(
    backend: str, encode: Encode, bge_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    path = folder / "tokenizer_config.json"
    described = read_json(path)
    described |= {"do_lower_case": False, "strip_accents": False, "truncation_side": "left"}
    path.write_text(json.dumps(described), encoding="utf-8")
    texts = ["Some WORDS", "naïve Größe", "a b c " * 200 + "last"]
    reference = flag_model(folder, pooling_method="cls").encode_corpus(texts)
    assert np.abs(encode(texts, name=folder, backend=backend) - reference).max() < 1e-5


def test_padding_beyond_a_window_of_attention_shapes_no_vector(
    few_texts: list[str], encode: Encode, lowest_cosine: Lowest, bge_folder: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import ModernBertConfig, ModernBertModel

    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=30522, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64,
        local_attention=16, global_attn_every_n_layers=2, pad_token_id=0, bos_token_id=101, eos_token_id=102,
        cls_token_id=101, sep_token_id=102, max_position_embeddings=512,
    )  # fmt: skip
    ModernBertModel(config).save_pretrained(folder)
    reference = flag_model(folder, pooling_method="cls").encode_corpus(few_texts)
    for backend in ("openvino", "native"):
        assert lowest_cosine(encode(few_texts, name=folder, backend=backend), reference) > 0.99999


def test_bge_m3_s_dense_vectors(
    few_texts: list[str], encode: Encode, lowest_cosine: Lowest, m3_folder: Path
) -> None:
    from FlagEmbedding import BGEM3FlagModel

    model = BGEM3FlagModel(str(m3_folder), use_fp16=False, devices=["cpu"])
    for length in (512, 1024):
        reference = model.encode(few_texts, max_length=length)["dense_vecs"]
        assert (
            lowest_cosine(encode(few_texts, name=m3_folder, passage_max_length=length), reference) > 0.99999
        )


@pytest.mark.parametrize(
    ("name", "kind", "template", "padding_side", "instruction"),
    [
        ("e5-mistral-7b-instruct", "Mistral", "<s> $A </s>", "right", WEB_SEARCH),
        ("bge-multilingual-gemma2", "Gemma2", "<s> $A </s>", "left", WEB_SEARCH + "."),
        ("Qwen3-Embedding-0.6B", "Qwen3", "$A </s>", "left", WEB_SEARCH),
    ],
)
def test_decoder_only_models(
    name: str, kind: str, template: str, padding_side: str, instruction: str, few_texts: list[str],
    encode: Encode, lowest_cosine: Lowest, save_tokenizer: Callable[..., int], tmp_path: Path,
) -> None:  # fmt: skip
    import torch
    import transformers
    from FlagEmbedding import FlagAutoModel, FlagLLMModel

    folder = tmp_path / name
    folder.mkdir()
    words = save_tokenizer(folder, few_texts, template, padding_side, "PreTrainedTokenizerFast")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=words, num_key_value_heads=1, head_dim=16, max_position_embeddings=2048,
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, bos_token_id=0,
        pad_token_id=1, eos_token_id=2,
    )  # fmt: skip
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    model = FlagAutoModel.from_finetuned(
        str(folder), use_fp16=False, devices=["cpu"], query_instruction_for_retrieval=instruction
    )
    assert isinstance(model, FlagLLMModel)
    for role, encoded in (("passages", model.encode_corpus), ("queries", model.encode_queries)):
        assert lowest_cosine(encode(few_texts, role, name=folder), encoded(few_texts)) > 0.99999
