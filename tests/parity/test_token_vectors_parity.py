"""Token vectors and MaxSim scores against FlagEmbedding's BGE-M3 and `MultiVectorEncoder`."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.records import Embeddings, Float32, Ragged, TokenEmbeddings
from pipeline.search.maxsim import maxsim_search

Encode = Callable[..., Ragged]


def texts_of(rows: Ragged) -> list[Float32]:
    return np.split(rows.columns[0], rows.ends[:-1])


def scores_of(passages: Ragged, queries: Ragged, mean: bool) -> Float32:
    """Our scores [queries, passages]."""
    passage, query = (TokenEmbeddings(Embeddings(rows.columns), rows.ends) for rows in (passages, queries))
    ids = pa.chunked_array([[str(row) for row in range(len(passages))]])
    with silent("", None, "") as bar:
        found = maxsim_search(passage, query, len(passages), ids, bar, mean=mean)
    scores = np.empty_like(found.scores)
    np.put_along_axis(scores, found.passages, found.scores, axis=1)
    return scores


def differ(one: Sequence[Any], two: Sequence[Any]) -> float:
    """The largest difference of two lists of texts' vectors, which have length 1."""
    for left, right in zip(one, two, strict=True):
        assert left.shape == right.shape
    return max(float(np.abs(left - right).max()) for left, right in zip(one, two, strict=True))


@pytest.mark.parametrize(("backend", "apart"), [("flag", 1e-5), ("native", 1e-3)])
def test_bge_m3_s_token_vectors_and_scores(
    backend: str, apart: float, few_texts: list[str], encode: Encode, m3_folder: Path
) -> None:
    from FlagEmbedding import BGEM3FlagModel

    theirs = BGEM3FlagModel(str(m3_folder), use_fp16=False, devices=["cpu"])
    settings = {"name": str(m3_folder), "backend": backend, "output": "multivector"}
    found = encode(few_texts, **settings)
    expected = theirs.encode(few_texts, max_length=512, return_dense=False, return_colbert_vecs=True)[
        "colbert_vecs"
    ]
    assert differ(texts_of(found), expected) < apart
    queries = encode(few_texts[:4], "queries", **settings)
    scores = scores_of(found, queries, mean=True)
    reference = [
        [float(theirs.colbert_score(query, passage)) for passage in expected] for query in expected[:4]
    ]
    np.testing.assert_allclose(scores, reference, rtol=apart)


EXPANSIONS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "fixed": {"strategy": "fixed", "attend": False, "length": 32},
    "attended": {"strategy": "fixed", "attend": True, "length": 32},
    "least": {"strategy": "min", "attend": False, "length": 12},
}


@pytest.mark.parametrize("expansion", EXPANSIONS)
def test_a_multi_vector_encoder_s_token_vectors_and_scores(
    expansion: str, few_texts: list[str], encode: Encode, bge_folder: Path, tmp_path: Path
) -> None:
    theirs = with_its_own_tokens(bge_folder, tmp_path / "model", EXPANSIONS[expansion])
    settings = {"name": str(tmp_path / "model"), "backend": "sentence-transformers", "output": "multivector"}
    check_against(theirs, few_texts, encode, settings)


def check_against(theirs: Any, texts: list[str], encode: Encode, settings: dict[str, Any]) -> None:
    """Compare vectors and scores with those of a MultiVectorEncoder."""
    asked = [text[:80] for text in texts[:6]]
    found, queries = encode(texts, **settings), encode(asked, "queries", **settings)
    expected = theirs.encode_document(texts, convert_to_numpy=True)
    expected_queries = theirs.encode_query(asked, convert_to_numpy=True)
    assert differ(texts_of(found), expected) < 1e-5
    assert differ(texts_of(queries), expected_queries) < 1e-5
    reference = theirs.similarity(expected_queries, expected).numpy()
    np.testing.assert_allclose(scores_of(found, queries, mean=False), reference, rtol=1e-5)


def with_its_own_tokens(source: Path, folder: Path, expansion: dict[str, Any] | None) -> Any:
    """A model with a network's own token vectors, prompts, a skip list and lengths, saved in a folder."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    network = Transformer(str(source), query_length=40, document_length=60, query_expansion=expansion)
    mask = MultiVectorMask(skiplist_words=list(string.punctuation))
    model = MultiVectorEncoder(
        modules=[network, mask, Normalize(module_input_name="token_embeddings")],
        prompts={"query": "query: ", "document": "passage: "},
        device="cpu",
    )
    model.save(str(folder))
    return MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)


def test_stanford_s_layout(few_texts: list[str], encode: Encode, bge_folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file
    from sentence_transformers import MultiVectorEncoder

    folder = Path(shutil.copytree(bge_folder, tmp_path / "colbert"))
    shutil.rmtree(folder / "1_Pooling")
    weights = {f"bert.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    weights["linear.weight"] = torch.randn(24, 128, generator=torch.Generator().manual_seed(0)) / 10
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(
        json.dumps(config | {"architectures": ["HF_ColBERT"]}), encoding="utf-8"
    )
    declared = {
        "query_maxlen": 20,
        "doc_maxlen": 50,
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
    }
    (folder / "artifact.metadata").write_text(json.dumps(declared), encoding="utf-8")
    theirs = MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)
    settings = {"name": str(folder), "backend": "sentence-transformers", "output": "multivector"}
    check_against(theirs, few_texts, encode, settings)


@pytest.mark.parametrize("named", [{"model_type": "ColBERT"}, {"similarity_fn_name": "MaxSim"}])
def test_pylate_s_layouts(
    named: dict[str, str], few_texts: list[str], encode: Encode, bge_folder: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import save_file
    from sentence_transformers import MultiVectorEncoder

    folder = Path(shutil.copytree(bge_folder, tmp_path / "pylate"))
    shutil.rmtree(folder / "1_Pooling")
    (folder / "1_Dense").mkdir()
    dense = {
        "in_features": 128,
        "out_features": 24,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense), encoding="utf-8")
    weight = torch.randn(24, 128, generator=torch.Generator().manual_seed(0)) / 10
    save_file({"linear.weight": weight}, folder / "1_Dense" / "model.safetensors")
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    declared = {
        **named, "query_prefix": "[unused0] ", "document_prefix": "[unused1] ",
        "query_length": 24, "document_length": 48, "attend_to_expansion_tokens": False,
        "skiplist_words": [".", ","],
    }  # fmt: skip
    (folder / "config_sentence_transformers.json").write_text(json.dumps(declared), encoding="utf-8")
    theirs = MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)
    settings = {"name": str(folder), "backend": "sentence-transformers", "output": "multivector"}
    check_against(theirs, few_texts, encode, settings)


def test_a_model_without_a_projection_is_refused(encode: Encode, minilm_folder: Path) -> None:
    with pytest.raises(InputError, match="not a multi-vector model"):
        encode(["a"], name=str(minilm_folder), backend="sentence-transformers", output="multivector")


def test_a_model_without_bge_m3_s_heads_is_refused(encode: Encode, bge_folder: Path) -> None:
    with pytest.raises(InputError, match=r"no colbert_linear\.pt"):
        encode(["a"], name=str(bge_folder), backend="flag", output="multivector")
