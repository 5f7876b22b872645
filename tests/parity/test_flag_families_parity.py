"""Our vectors against the classes FlagEmbedding has for bge-m3 and for decoder-only models.

The models are tiny and random; their tokenizer is trained on the texts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.records import Float32
from pipeline.models.card import WEB_SEARCH

Encode = Callable[..., Float32]
Lowest = Callable[[Any, Any], float]
SHAPE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


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
    name: str,
    kind: str,
    template: str,
    padding_side: str,
    instruction: str,
    few_texts: list[str],
    encode: Encode,
    lowest_cosine: Lowest,
    save_tokenizer: Callable[..., int],
    tmp_path: Path,
) -> None:
    import torch
    import transformers
    from FlagEmbedding import FlagAutoModel, FlagLLMModel

    folder = tmp_path / name
    folder.mkdir()
    words = save_tokenizer(folder, few_texts, template, padding_side, "PreTrainedTokenizerFast")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=words, num_key_value_heads=1, head_dim=16, max_position_embeddings=2048, **SHAPE
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    model = FlagAutoModel.from_finetuned(
        str(folder), use_fp16=False, devices=["cpu"], query_instruction_for_retrieval=instruction
    )
    assert isinstance(model, FlagLLMModel)
    passages = encode(few_texts, name=str(folder))
    queries = encode(few_texts, "queries", name=str(folder))
    assert lowest_cosine(passages, model.encode_corpus(few_texts)) > 0.99999
    assert lowest_cosine(queries, model.encode_queries(few_texts)) > 0.99999
