"""Instructions that are not pooled with a text, and adapters that a model's own code chooses by the role."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from workplaces import BAR, document, read_json

from pipeline import InputError
from pipeline.config import BACKENDS
from pipeline.encoders import Encoder, Usage, resolve
from pipeline.storage import Store

TEXTS = ["how to bake bread at home without an oven", "the capital of France is Paris"]
CODE = """
import torch
from transformers import BertModel

class Own(BertModel):
    def forward(self, input_ids=None, attention_mask=None, adapter_mask=None, **others):
        output = super().forward(input_ids=input_ids, attention_mask=attention_mask)
        number = 9 if adapter_mask is None else adapter_mask[:, None, None]
        turned = torch.roll(output.last_hidden_state, 1, dims=-1) + 2 * number
        output.last_hidden_state = turned
        return output
"""
"""A network whose vectors say which adapter they were made by; without one they are far off."""


def opened(store: Store, **settings: object) -> Encoder:
    encoder: Encoder = resolve(BACKENDS.make(**{**settings, "name": str(settings["name"])})).open(store)
    return encoder


def rows(encoder: Encoder, role: Any) -> Any:
    computed = encoder.encode(TEXTS, role, Usage(), BAR)
    assert isinstance(computed, np.ndarray)
    return computed


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_a_mean_leaves_the_instruction_out_where_the_files_say_so(
    backend: str, edited: Callable[..., Path], tmp_path: Path
) -> None:
    pooling = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "include_prompt": False}
    prompts = {"prompts": {"query": "find passages that answer: ", "document": ""}}
    modules = [
        {"idx": number, "name": str(number), "type": f"sentence_transformers.models.{kind}", "path": path}
        for number, (kind, path) in enumerate((("Transformer", ""), ("Pooling", "1_Pooling")))
    ]
    files = {"1_Pooling/config.json": pooling, "config_sentence_transformers.json": prompts}
    folder = edited({**files, "modules.json": modules})
    encoder = opened(Store(tmp_path / "store"), name=folder, backend=backend)
    library = SentenceTransformer(str(folder), device="cpu")
    for role, theirs in (
        ("queries", library.encode_query(TEXTS)),
        ("passages", library.encode_document(TEXTS)),
    ):
        own = rows(encoder, role)
        own = own / np.linalg.norm(own, axis=1, keepdims=True)
        np.testing.assert_allclose(own, theirs / np.linalg.norm(theirs, axis=1, keepdims=True), atol=2e-6)
    assert encoder.model.decided["pooled"] == ("a text without its instruction", "model")
    with pytest.raises(InputError, match=r"pools a text without its instruction, which backend 'native'"):
        opened(Store(tmp_path / "store"), name=folder, backend="native")


def test_the_code_of_jina_v3_is_told_the_adapter_of_each_role(
    edited: Callable[..., Path], tmp_path: Path
) -> None:
    tasks = ["retrieval.query", "retrieval.passage", "separation"]
    own = {"architectures": ["Own"], "auto_map": {"AutoModel": "modeling_own.Own"}, "lora_adaptations": tasks}
    folder = edited({"config.json": own, "modeling_own.py": CODE.encode()}, "jina-embeddings-v3")
    plain = edited({}, "plain")
    encoder = opened(Store(tmp_path / "store"), name=folder, backend="flag", trust_remote_code=True)
    reference = opened(
        Store(tmp_path / "store"), name=plain, backend="flag", query_instruction="", passage_instruction=""
    )
    reference.model.prompts.update(encoder.model.prompts)
    assert encoder.model.prompts["queries"] == ("Represent the query for retrieving evidence documents: ", "")
    for number, role in enumerate(("queries", "passages")):
        expected = np.roll(rows(reference, role), 1, axis=1) + 2 * number
        np.testing.assert_allclose(rows(encoder, role), expected, atol=1e-5)
    assert encoder.model.recipe("queries")["task_adapter"] == 0
    for settings in ({"backend": "sentence-transformers", "trust_remote_code": True}, {"backend": "flag"}):
        with pytest.raises(InputError, match="has adapters for tasks, and would run without them"):
            opened(Store(tmp_path / "store"), name=folder, **settings)


def test_embedding_gemma_runs_with_its_modules_and_the_prompts_of_its_name(
    bge_folder: Path, tmp_path: Path
) -> None:
    from transformers import Gemma3TextConfig, Gemma3TextModel

    body, folder = tmp_path / "body", tmp_path / "embeddinggemma-300m"
    shutil.copytree(bge_folder, body, ignore=shutil.ignore_patterns("*.safetensors", "1_Pooling"))
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=30522, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1,
        head_dim=16, intermediate_size=64, sliding_window=8, use_bidirectional_attention=True, pad_token_id=0,
    )  # fmt: skip
    Gemma3TextModel(config).save_pretrained(body)
    plain = {"bias": False, "activation_function": torch.nn.Identity()}
    chain = [
        Transformer(str(body)),
        Pooling(64, "mean"),
        Dense(64, 96, **plain),
        Dense(96, 64, **plain),
        Normalize(),
    ]
    library = SentenceTransformer(modules=chain, device="cpu")
    library.save(str(folder))
    settings = {"source": "sample", "queries": 5, "corpus": 40}
    benchmark = {
        "name": "gemma",
        "data": settings,
        "cache": str(tmp_path),
        "output": str(tmp_path / "results"),
    }
    benchmark |= {"model": {"name": str(folder), "backend": "sentence-transformers"}, "search": {"top_k": 10}}
    benchmark["evaluate"] = {"measures": ["ndcg@10"]}
    (tmp_path / "c.yaml").write_text(json.dumps(benchmark), encoding="utf-8")
    document("run", tmp_path / "c.yaml")
    (model,) = read_json(tmp_path / "results" / "gemma" / "manifest.json")["models"]
    assert model["settings"]["query instruction"] == {
        "value": "task: search result | query: ",
        "source": "family",
    }
    encoder = opened(Store(tmp_path), name=folder, backend="sentence-transformers")
    theirs = library.encode([f"title: none | text: {text}" for text in TEXTS])
    own = rows(encoder, "passages")
    np.testing.assert_allclose(own / np.linalg.norm(own, axis=1, keepdims=True), theirs, atol=2e-6)
