"""Word weights equal those of the libraries' own encoders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.records import Float32

Encode = Callable[..., Float32]
TEXTS = 40


@pytest.fixture(scope="module")
def splade(root: Path) -> Path:
    """A real learned sparse model, which the project may read and never ships."""
    folder = root.parent / "shared" / "models" / "splade-tiny"
    if not folder.is_dir():
        pytest.skip("the model ../shared/models/splade-tiny is not on this machine")
    return folder


@pytest.fixture
def rows_of(encode: Encode) -> Encode:
    """The weights that a backend gives, as float32 [texts, words]; words are ascending in each row."""

    def dense(folder: Path, texts: list[str], role: str = "passages", **settings: Any) -> Float32:
        given = {"backend": "sentence-transformers", "output": "sparse", "name": str(folder), **settings}
        found: Any = encode(texts, role, **given)
        words, weights = found.columns
        assert (words.dtype, weights.dtype) == (np.int32, np.float32)
        assert (weights > 0).all()
        row = np.repeat(np.arange(len(texts)), found.lengths)
        assert (np.diff(row * 30522 + words) > 0).all()
        whole = np.zeros((len(texts), 30522), np.float32)
        whole[row, words] = weights
        return whole

    return dense


@pytest.mark.parametrize(("backend", "apart"), [("flag", 1e-6), ("native", 1e-3)])
def test_weights_equal_those_of_bge_m3(
    backend: str, apart: float, few_texts: list[str], rows_of: Encode, m3_folder: Path
) -> None:
    from FlagEmbedding import BGEM3FlagModel

    peer = BGEM3FlagModel(str(m3_folder), use_fp16=False, devices=["cpu"])
    expected = np.zeros((len(few_texts), 30522), np.float32)
    made = peer.encode(few_texts, return_dense=False, return_sparse=True)["lexical_weights"]
    for row, weights in enumerate(made):
        expected[row, [*map(int, weights)]] = [*weights.values()]
    found = rows_of(m3_folder, few_texts, backend=backend)
    assert (found > 0).sum() > 2 * len(few_texts)
    assert ((found > 0) == (expected > 0))[expected > apart].all()
    np.testing.assert_allclose(found, expected, rtol=2e-3 if backend == "native" else 0, atol=apart)


def test_weights_equal_those_of_sparse_encoder(splade: Path, passages: list[str], rows_of: Encode) -> None:
    from sentence_transformers import SparseEncoder

    texts = passages[:TEXTS]
    peer = SparseEncoder(str(splade), device="cpu")
    for role, encode in (("passages", peer.encode_document), ("queries", peer.encode_query)):
        expected = encode(texts, batch_size=8).to_dense().numpy()
        found = rows_of(splade, texts, role)
        assert (found > 0).sum() > 10 * TEXTS
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_weights_in_int16_are_those_of_sparse_encoder(
    few_texts: list[str], splade: Path, rows_of: Encode, lowest_cosine: Callable[..., float]
) -> None:
    """A cosine of 0.99999 at least, as of all vectors in int16, and no word of weight lost or gained."""
    native = rows_of(splade, few_texts, backend="native", precision="int16")
    expected = rows_of(splade, few_texts)
    assert lowest_cosine(native, expected) > 0.99999
    assert np.abs(native - expected).max() < 5e-3
