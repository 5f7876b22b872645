"""Tokenizers: a model's own, as the `tokenizers` package runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import InputError
from pipeline.models.files import damaged
from pipeline.models.model import Model

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def load_tokenizer(model: Model, folder: Path) -> Tokenizer:
    """A model's fast tokenizer; transformers is imported only if `folder` has no `tokenizer.json`."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises this class itself
            raise damaged(f"{path}: not a tokenizer: {error}") from None
    from transformers import AutoTokenizer

    return fast_tokenizer(model, AutoTokenizer.from_pretrained(folder))


def fast_tokenizer(model: Model, tokenizer: Any) -> Tokenizer:
    """The `tokenizers` tokenizer inside one of transformers', of which a few are written in Python alone."""
    fast = _inner_tokenizer(tokenizer)
    if fast is None:
        raise InputError(
            f"model '{model.name}' has only a slow tokenizer, {type(tokenizer).__name__}",
            allowed="a tokenizer of the package tokenizers, as in tokenizer.json",
            fix="convert it, or encode elsewhere and set model.backend to precomputed",
        )
    if fast.get_vocab_size() <= len(tokenizer.all_special_tokens):
        raise damaged(
            f"the tokenizer of model '{model.name}' has an empty vocabulary: its files are missing",
            "tokenizer.json, or the files it is built from, such as vocab.txt",
        )
    return fast


def write_tokenizer(folder: Path, target: Path, trust_remote_code: bool) -> None:
    """Write a model's tokenizer, as transformers loads it, to a `tokenizer.json`; see `fast_tokenizer`."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    fast = _inner_tokenizer(tokenizer)
    if fast is None:
        raise ValueError(f"it has only a slow tokenizer, {type(tokenizer).__name__}")
    fast.save(str(target))


def _inner_tokenizer(tokenizer: Any) -> Tokenizer | None:
    """The `tokenizers` tokenizer inside one of transformers', set to truncate on the same side."""
    fast: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if fast is not None:
        fast.enable_truncation(512, direction=tokenizer.truncation_side)
    return fast
