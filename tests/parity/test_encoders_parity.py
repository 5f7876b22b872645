"""Our vectors against FlagEmbedding's own encoders: of BERT, of bge-m3, and of decoder-only models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import BACKENDS
from pipeline.core.records import Float32
from pipeline.encoders import resolve
from pipeline.models.card import WEB_SEARCH

pytestmark = pytest.mark.usefixtures("quick_conversion")

Encode = Callable[..., Float32]
Lowest = Callable[[Any, Any], float]
EXACT = pytest.mark.parametrize(
    ("backend", "precision", "near"),
    [("flag", "fp32", 1e-5), ("openvino", "fp32", 1e-5), ("native", "int16", 2e-4)],
    ids=["flag", "openvino", "native"],
)
INSTRUCTION = "Represent this sentence for searching relevant passages:"
MINILM = "all-minilm-l6-v2"


def flag_model(folder: Path, **settings: Any) -> Any:
    from FlagEmbedding import FlagModel

    return FlagModel(str(folder), use_fp16=False, devices=["cpu"], batch_size=32, **settings)


@pytest.fixture(scope="module")
def of_minilm(few_texts: list[str], minilm_folder: Path) -> Any:
    """FlagModel's vectors."""
    return flag_model(minilm_folder, pooling_method="mean").encode_corpus(few_texts)


@EXACT
def test_minilm(
    backend: str, precision: str, near: float, few_texts: list[str], encode: Encode, lowest_cosine: Lowest,
    of_minilm: Float32,
) -> None:  # fmt: skip
    vectors = encode(few_texts, name=MINILM, backend=backend, precision=precision, passage_max_length=512)
    assert vectors.dtype == np.float32
    assert lowest_cosine(vectors, of_minilm) > 0.99999
    assert np.abs(vectors - of_minilm).max() < near


@EXACT
def test_bge_queries_with_the_default_instruction(
    backend: str, precision: str, near: float, few_texts: list[str], encode: Encode, lowest_cosine: Lowest,
    bge_folder: Path,
) -> None:  # fmt: skip
    model = flag_model(bge_folder, pooling_method="cls", query_instruction_for_retrieval=INSTRUCTION)
    vectors = encode(few_texts, "queries", name=str(bge_folder), backend=backend, precision=precision)
    assert lowest_cosine(vectors, model.encode_queries(few_texts)) > 0.99999


@EXACT
def test_lengths_are_cut_and_norms_kept_as_flagembedding_does(
    backend: str, precision: str, near: float, few_texts: list[str], encode: Encode, bge_folder: Path
) -> None:
    model = flag_model(bge_folder, normalize_embeddings=False, passage_max_length=16)
    settings = {"name": str(bge_folder), "normalize": False, "passage_max_length": 16}
    vectors = encode(few_texts, backend=backend, precision=precision, **settings)
    assert np.abs(vectors - model.encode_corpus(few_texts)).max() < 10 * near


@pytest.mark.parametrize("backend", ["flag", "openvino"])
def test_bf16_stays_close_and_a_batch_size_moves_no_vector(
    backend: str, few_texts: list[str], encode: Encode, lowest_cosine: Lowest
) -> None:
    full = encode(few_texts, name=MINILM, backend=backend)
    half = encode(few_texts, name=MINILM, backend=backend, precision="bf16")
    assert half.dtype == np.float32
    assert lowest_cosine(half, full) > 0.999
    for size in (1, 7):
        assert np.abs(encode(few_texts, name=MINILM, backend=backend, batch_size=size) - full).max() < 1e-5


def test_a_folder_s_name_shapes_no_vector(
    few_texts: list[str], encode: Encode, bge_folder: Path, tmp_path: Path
) -> None:
    named = tmp_path / "bge-m3"  # FlagEmbedding has a class of its own for models of that name
    named.symlink_to(bge_folder)
    both = [{"name": str(each), "backend": "flag", "query_instruction": ""} for each in (bge_folder, named)]
    one, other = (resolve(BACKENDS.make(**settings)).recipe("queries") for settings in both)
    assert one == other
    assert np.array_equal(*(encode(few_texts, **settings) for settings in both))


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
    settings: dict[str, object], backend: str, encode: Encode, bge_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    path = folder / "tokenizer_config.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**described, **settings}), encoding="utf-8")
    texts = ["Some WORDS", "naïve Größe", "a b c " * 200 + "last"]
    reference = flag_model(folder, pooling_method="cls").encode_corpus(texts)
    assert np.abs(encode(texts, name=str(folder), backend=backend) - reference).max() < 1e-5


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_padding_beyond_a_window_of_attention_shapes_no_vector(
    precision: str,
    few_texts: list[str],
    encode: Encode,
    lowest_cosine: Lowest,
    bge_folder: Path,
    tmp_path: Path,
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
    reference = flag_model(folder, pooling_method="cls").encode_corpus(few_texts)
    vectors = encode(few_texts, name=str(folder), backend="openvino", precision=precision)
    assert lowest_cosine(vectors, reference) > (0.99999 if precision == "fp32" else 0.999)


def test_bge_m3_s_dense_vectors(
    few_texts: list[str], encode: Encode, lowest_cosine: Lowest, m3_folder: Path
) -> None:
    from FlagEmbedding import BGEM3FlagModel

    model = BGEM3FlagModel(str(m3_folder), use_fp16=False, devices=["cpu"])
    for length in (512, 1024):
        vectors = encode(few_texts, name=str(m3_folder), passage_max_length=length)
        reference = model.encode(few_texts, max_length=length)["dense_vecs"]
        assert lowest_cosine(vectors, reference) > 0.99999


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
    passages = encode(few_texts, name=str(folder))
    queries = encode(few_texts, "queries", name=str(folder))
    assert lowest_cosine(passages, model.encode_corpus(few_texts)) > 0.99999
    assert lowest_cosine(queries, model.encode_queries(few_texts)) > 0.99999
