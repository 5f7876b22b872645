"""Tokenizers that are damaged or empty are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordLevel, WordPiece
from transformers import AutoTokenizer, BertConfig

from pipeline.core.errors import InputError
from pipeline.encoders.batching import tokenize
from pipeline.encoders.torch.loading import explain_loading_errors
from pipeline.models.files import Files
from pipeline.models.model import Model
from pipeline.models.tokenizer import checked, fast_tokenizer, load_tokenizer

MODEL = Model(
    name="nomic", files=Files(), identity={}, pooling="mean", precision="fp32", device="cpu",
    prompts={"passages": ("", ""), "queries": ("", "")}, max_lengths={"passages": 20, "queries": 20},
    pad_id=0,
)  # fmt: skip


def test_a_tokenizer_that_transformers_makes_of_nothing_is_refused(tmp_path: Path) -> None:
    BertConfig().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="the tokenizer of model 'nomic' has an empty vocabulary"):
        fast_tokenizer(MODEL.name, AutoTokenizer.from_pretrained(tmp_path))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"version": "1.0"'])
def test_a_damaged_tokenizer_is_said_plainly(tmp_path: Path, content: bytes) -> None:
    BertConfig().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(InputError, match=r"tokenizer\.json: not a tokenizer: .*\. Restore the model's files"):
        load_tokenizer(MODEL, tmp_path)
    with (
        pytest.raises(InputError, match="the files of model 'nomic' cannot be loaded: "),
        explain_loading_errors(MODEL),
    ):
        AutoTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", [WordPiece, WordLevel])
def test_a_tokenizer_without_the_token_for_unknown_words_is_refused(kind: Any) -> None:
    vocabulary = {"a": 0, "[UNK]": 1}
    whole = Tokenizer(kind(vocabulary, unk_token="[UNK]"))
    assert checked(whole, "m") is whole
    lacking = Tokenizer(kind({"a": 0, "b": 1}, unk_token="[UNK]"))
    lacking.add_special_tokens(["[UNK]"])  # an id beside the vocabulary, of which the model knows nothing
    with pytest.raises(InputError, match=r"the tokenizer of model 'm' has no token '\[UNK\]'"):
        checked(lacking, "m")


def test_a_text_that_a_tokenizer_cannot_encode_is_no_traceback() -> None:
    tokenizer = Tokenizer(Unigram([("a", 0.0)]))
    assert tokenize(tokenizer, ["a"], 5)[0].tolist() == [0]
    with pytest.raises(InputError, match=r"tokenizer cannot encode a text: .*unknown token"):
        tokenize(tokenizer, ["b"], 5)
