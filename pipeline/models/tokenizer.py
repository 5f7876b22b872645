"""Tokenizers: a model's own, as the `tokenizers` package runs it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.errors import InputError, short_repr
from pipeline.models.files import damaged
from pipeline.models.model import ResolvedBase, ResolvedModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase


log = logging.getLogger(__name__)


def load_tokenizer(model: ResolvedBase, folder: Path) -> Tokenizer:
    """A model's fast tokenizer; transformers is imported only if `folder` has no `tokenizer.json`."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            return checked(Tokenizer.from_file(str(path)), model.name)
        except InputError:
            raise
        except Exception as error:  # tokenizers raises this class itself
            raise damaged(f"{path}: not a tokenizer: {error}") from None
    from transformers import AutoTokenizer

    return fast_tokenizer(model.name, AutoTokenizer.from_pretrained(folder))


def token_spans(model: ResolvedModel) -> Callable[[list[str], int], list[list[tuple[int, int]] | None]]:
    """A function that gives the characters [start, stop) of each token of whole texts, special ones left out.

    Its second argument is a number of tokens: of a text that has no more, it gives None.
    """
    tokenizer = _untruncated(model)

    def spans(texts: list[str], most: int) -> list[list[tuple[int, int]] | None]:
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoding.offsets if len(encoding) > most else None for encoding in encodings]

    return spans


def token_counter(model: ResolvedModel) -> Callable[[list[str]], list[int]]:
    """A function that counts the tokens of whole texts, special tokens included."""
    tokenizer = _untruncated(model)
    return lambda texts: [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)]


def room_for_text(model: ResolvedModel) -> int:
    """How many tokens a model reads of a passage, besides special tokens and the passage instruction."""
    around = _untruncated(model).encode("".join(model.prompts["passages"])).ids
    return model.max_lengths["passages"] - len(around)


def _untruncated(model: ResolvedModel) -> Tokenizer:
    """The model's tokenizer, which neither truncates nor pads."""
    tokenizer = add_end_tokens(load_tokenizer(model, model.files.tokenizer_folder()), model)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def fast_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """The `tokenizers` tokenizer inside one of transformers', of the model `name`.

    Raises:
        InputError: There is none, as a few are written in Python alone, or it cannot encode every text.
    """
    fast: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise InputError(
            f"model '{name}' has only a slow tokenizer, {type(tokenizer).__name__}",
            allowed="a tokenizer of the package tokenizers, as in tokenizer.json",
            fix="convert it, or encode elsewhere and set model.backend to precomputed",
        )
    fast.enable_truncation(512, direction=tokenizer.truncation_side)  # for the side alone
    return checked(fast, name)


def add_end_tokens(tokenizer: Tokenizer, model: ResolvedModel) -> Tokenizer:
    """The tokenizer of a model, changed to begin and end each text with the model's `end_tokens`.

    From version 5 on, transformers applies `add_bos_token` and `add_eos_token` of tokenizer_config.json to
    few classes of tokenizers. A model that pools the last token gives other vectors without its end token.
    """
    from tokenizers.processors import TemplateProcessing

    if not any(model.end_tokens):
        return tokenizer
    tokenizer.no_padding()  # whose tokens are special ones, too
    encoding = tokenizer.encode("a")
    if 0 not in encoding.special_tokens_mask:
        raise damaged(f"the tokenizer of model '{model.name}' gives no token for the text 'a'")
    place, (begin, end) = encoding.special_tokens_mask.index(0), model.end_tokens
    before, after = encoding.tokens[:place], encoding.tokens[place:]
    after = after[encoding.special_tokens_mask[place:].count(0) :]
    missing_begin = [begin] if begin and before[:1] != [begin] else []
    missing_end = [end] if end and after[-1:] != [end] else []
    if not missing_begin and not missing_end:
        return tokenizer
    special = [*missing_begin, *before, *after, *missing_end]
    ids = {token: tokenizer.token_to_id(token) for token in special}
    if None in ids.values():
        raise damaged(f"the tokenizer of model '{model.name}' lacks the token of its tokenizer_config.json")
    single = [*missing_begin, *before, "$A", *after, *missing_end]
    tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=list(ids.items()))
    log.info(
        "model %s: %s is put around each text, as tokenizer_config.json declares and tokenizer.json does not",
        model.name, " and ".join([*missing_begin, *missing_end]),
    )  # fmt: skip
    return tokenizer


def checked(tokenizer: Tokenizer, name: str) -> Tokenizer:
    """The tokenizer of the model `name`, if it can encode every text.

    Raises:
        InputError: Its vocabulary is empty, or lacks the token that stands for unknown words.
    """
    special = tokenizer.get_added_tokens_decoder()
    if tokenizer.get_vocab_size() <= len(special):
        raise damaged(
            f"the tokenizer of model '{name}' has an empty vocabulary",
            "tokenizer.json, or the files it is built from, such as vocab.txt",
        )
    by_words = type(tokenizer.model).__name__ in ("WordPiece", "WordLevel")  # others may never meet one
    unknown = getattr(tokenizer.model, "unk_token", None)
    if by_words and tokenizer.model.token_to_id(str(unknown)) is None:
        raise damaged(
            f"the tokenizer of model '{name}' has no token {short_repr(unknown)}, which stands for words "
            "that it does not know"
        )
    return tokenizer


def write_tokenizer(folder: Path, target: Path, name: str, trust_remote_code: bool) -> Tokenizer:
    """Write the tokenizer of the model `name`, as transformers loads it, to a `tokenizer.json`.

    Returns it. See `fast_tokenizer`.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    fast = fast_tokenizer(name, tokenizer)
    fast.save(str(target))
    return fast
