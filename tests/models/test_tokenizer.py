"""Tokenizers that are damaged, empty or slow are refused where tokens are counted."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel, WordPiece
from transformers import ByT5Tokenizer

from pipeline import InputError
from pipeline.config import BACKENDS
from pipeline.encoders import resolve
from pipeline.models import token_counter

Edit = Callable[..., Path]


def described(model: WordPiece | WordLevel) -> Mapping[str, object]:
    """A tokenizer.json in which the token for unknown words has an id, and no place in the vocabulary."""
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(["[UNK]"])
    content: Mapping[str, object] = json.loads(tokenizer.to_str())
    return content


WORDS = {"a": 0, "b": 1}
REFUSED: dict[str, tuple[Mapping[str, object], str]] = {
    **{
        f"damaged: {content[:9]!r}": (
            {"tokenizer.json": content}, r"tokenizer\.json: not a tokenizer: .*\. Restore the model's files"
        )
        for content in (b"", b"{}", b"\xff\xfe", b'{"version": "1.0"')
    },
    **{
        f"without the token for unknown words: {kind.__name__}": (
            {"tokenizer.json": described(kind(WORDS, unk_token="[UNK]"))}, r"has no token '\[UNK\]'"
        )
        for kind in (WordPiece, WordLevel)
    },
    "made of nothing": ({"tokenizer.json": None, "vocab.txt": b""}, "has an empty vocabulary"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_tokenizer_that_cannot_encode_every_text_is_refused(case: str, edited: Edit) -> None:
    files, said = REFUSED[case]
    with pytest.raises(InputError, match=said):
        token_counter(resolve(BACKENDS.make(backend="flag", name=str(edited(files)))).model.tokenizer)


def test_a_slow_tokenizer_is_refused(edited: Edit) -> None:
    folder = edited({"tokenizer.json": None})
    ByT5Tokenizer().save_pretrained(folder)
    with pytest.raises(InputError, match="only a slow tokenizer, ByT5Tokenizer"):
        token_counter(resolve(BACKENDS.make(backend="flag", name=str(folder))).model.tokenizer)
