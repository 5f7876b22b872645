"""Token vectors and MaxSim scores against FlagEmbedding's BGE-M3 and `MultiVectorEncoder`."""

import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from FlagEmbedding import BGEM3FlagModel
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from workplaces import BAR

from pipeline.core.errors import InputError
from pipeline.core.records import Embeddings, Float32, RaggedRows, TokenEmbeddings
from pipeline.search.maxsim import maxsim_search

Encode = Callable[..., RaggedRows]


def texts_of(rows: RaggedRows) -> list[Float32]:
    return np.split(rows.columns[0], rows.ends[:-1])


def scores_of(passages: RaggedRows, queries: RaggedRows, mean: bool) -> Float32:
    """Our scores [queries, passages]."""
    passage, query = (TokenEmbeddings(Embeddings(rows.columns), rows.ends) for rows in (passages, queries))
    ids = pa.chunked_array([[str(row) for row in range(len(passages))]])
    found = maxsim_search(passage, query, len(passages), ids, BAR, mean=mean)
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
    theirs = BGEM3FlagModel(str(m3_folder), use_fp16=False, devices=["cpu"])
    settings = {"name": m3_folder, "backend": backend, "output": "multivector"}
    found, queries = encode(few_texts, **settings), encode(few_texts[:4], "queries", **settings)
    made = theirs.encode(few_texts, max_length=512, return_dense=False, return_colbert_vecs=True)
    expected = made["colbert_vecs"]
    assert differ(texts_of(found), expected) < apart
    reference = [[float(theirs.colbert_score(query, each)) for each in expected] for query in expected[:4]]
    np.testing.assert_allclose(scores_of(found, queries, mean=True), reference, rtol=apart)


@pytest.mark.parametrize(
    "expansion",
    [
        None,
        {"strategy": "fixed", "attend": False, "length": 32},
        {"strategy": "fixed", "attend": True, "length": 32},
        {"strategy": "min", "attend": False, "length": 12},
    ],
)
def test_a_multi_vector_encoder_s_token_vectors_and_scores(
    expansion: dict[str, Any] | None, few_texts: list[str], encode: Encode, bge_folder: Path, tmp_path: Path
) -> None:
    """With a network's own token vectors, prompts, a skip list and lengths."""
    network = Transformer(str(bge_folder), query_length=40, document_length=60, query_expansion=expansion)
    mask = MultiVectorMask(skiplist_words=list(string.punctuation))
    MultiVectorEncoder(
        modules=[network, mask, Normalize(module_input_name="token_embeddings")],
        prompts={"query": "query: ", "document": "passage: "},
        device="cpu",
    ).save(str(tmp_path / "model"))
    check_against(tmp_path / "model", few_texts, encode)


def check_against(folder: Path, texts: list[str], encode: Encode) -> None:
    """Compare vectors and scores of a model with those of a MultiVectorEncoder."""
    theirs = MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)
    settings = {"name": folder, "backend": "sentence-transformers", "output": "multivector"}
    asked = [text[:80] for text in texts[:6]]
    found, queries = encode(texts, **settings), encode(asked, "queries", **settings)
    expected = theirs.encode_document(texts, convert_to_numpy=True)
    expected_queries = theirs.encode_query(asked, convert_to_numpy=True)
    assert differ(texts_of(found), expected) < 1e-5
    assert differ(texts_of(queries), expected_queries) < 1e-5
    reference = theirs.similarity(expected_queries, expected).numpy()
    np.testing.assert_allclose(scores_of(found, queries, mean=False), reference, rtol=1e-5)


def test_a_model_without_bge_m3_s_heads_is_refused(encode: Encode, bge_folder: Path) -> None:
    with pytest.raises(InputError, match=r"no colbert_linear\.pt"):
        encode(["a"], name=bge_folder, backend="flag", output="multivector")
