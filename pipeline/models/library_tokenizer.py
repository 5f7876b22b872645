"""Transformers' tokenizer of a model, as FlagEmbedding and sentence-transformers load it.

From version 5 on, transformers builds many tokenizers from the vocabulary of tokenizer.json alone, by the
class that a model's files name. With another class than the vocabulary's, words become single characters or
unknown tokens. So the kind of its tokenizer must be that of tokenizer.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.core.errors import InputError, short_repr
from pipeline.models.files import damaged, untrusted_code

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

PROBE_TEXTS = (
    "How do pilots guide ships into harbours?",
    "In 2023 the port served 1,204 ships; 3.14159 and 0x1F are numbers, too.",
    "Two lines\nof one text.",
    "Straße, café, ¿qué tal?, Łódź, İstanbul, smørrebrød",
    "今天的天气很好，我们去图书馆检索文献。",
    "日本語のテキストを検索します",
    "한국어 문서를 검색합니다",
    "Поиск по документам на русском языке",
    "αναζήτηση εγγράφων",
    "البحث في الوثائق",
    "חיפוש במסמכים",
    "दस्तावेज़ों में खोज",
    "การค้นหาเอกสาร",
    "for i in range(10): total_sum += x[i]  # code, see https://example.org/a?b=c",
    "Don't they've I'll",
    "ships and harbours " * 200,
    "", "a", "  two  spaces   ", "\n\na\tb\r\n  c\n", "ﬁne Ｆｕｌｌ１２ e\u0301",
    "\u200bzero\u00a0width\u00ad\ufeff", "🙂\u200d👧 🇩🇪", "a" * 300, "<bos> <eos> <instruct>",
    "[CLS] [SEP] [MASK] [UNK] [PAD] <s> </s> <pad> <unk> <mask>", "<|endoftext|> <|im_start|>",
)  # fmt: skip
"""Texts in many languages, and those that tokenizers often read in different ways: white space, look-alikes,
special tokens. Another version of transformers that reads them otherwise leads to other keys."""


class TokenizerSettings(NamedTuple):
    """What the tokenizer of a model is made by, besides its files."""

    name: str  # the model's, for messages
    trust_remote_code: bool = False  # whether Python files that come with the model may run
    end_tokens: tuple[str, str] = ("", "")  # the tokens to begin and end each text with; "" for none
    # Whether transformers loads it; not of a static model, which takes its tokenizer.json.
    by_library: bool = True
    plain: bool = False  # whether texts get no special tokens, as in a static model


def load_tokenizer(folder: Path, settings: TokenizerSettings) -> Tokenizer:
    """The tokenizer of the model in `folder`.

    Raises:
        InputError: It is damaged, or is not in the package tokenizers; or transformers takes one of another
            kind than the model's own tokenizer.json.
    """
    tokenizer = _own_tokenizer(folder, settings.name)
    if settings.by_library:
        library = _load(folder, settings)
        used = fast_tokenizer(settings.name, library)
        if tokenizer is not None and type(tokenizer.model) is not type(used.model):
            own, other = (type(each.model).__name__ for each in (tokenizer, used))
            raise InputError(
                f"model '{settings.name}': its tokenizer is a {own} by its tokenizer.json, and a {other} by "
                f"transformers, which takes the class {type(library).__name__}",
                allowed="a model whose tokenizer transformers reads as its file says",
                fix="set tokenizer_class in its tokenizer_config.json to the class that it was trained with, "
                "or to PreTrainedTokenizerFast, which takes tokenizer.json as it is for most architectures",
            )
        tokenizer = used
    elif tokenizer is None:
        raise damaged(f"model '{settings.name}' has no tokenizer.json in {folder}")
    return complete(tokenizer, settings)


def _own_tokenizer(folder: Path, name: str) -> Tokenizer | None:
    """The tokenizer in a model's `tokenizer.json`; None if there is no such file."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        return checked(Tokenizer.from_file(str(path)), name)
    except InputError:
        raise
    except Exception as error:  # tokenizers raises this class itself
        raise damaged(f"{path}: not a tokenizer: {error}") from None


def _load(folder: Path, settings: TokenizerSettings) -> PreTrainedTokenizerBase:
    """The tokenizer as FlagEmbedding and sentence-transformers load it."""
    from transformers import AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=settings.trust_remote_code)
    except MemoryError:
        raise
    except Exception as error:  # of tokenizers, of transformers, and of a model's own Python files
        if "trust_remote_code" in str(error):
            raise untrusted_code(settings.name) from None
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise damaged(f"the tokenizer of model '{settings.name}' cannot be loaded: {reason}") from error


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


def complete(tokenizer: Tokenizer, settings: TokenizerSettings) -> Tokenizer:
    """A tokenizer of transformers, changed to what the model needs, such as its end tokens; the same object.

    From version 5 on, transformers applies `add_bos_token` and `add_eos_token` of tokenizer_config.json to
    few classes of tokenizers. A model that pools the last token gives other vectors without its end token.
    """
    from tokenizers.processors import TemplateProcessing

    name, (begin, end) = settings.name, settings.end_tokens
    if settings.plain:
        tokenizer.post_processor = None  # a mean of word vectors takes no special tokens
    if not begin and not end:
        return tokenizer
    tokenizer.no_padding()  # whose tokens are special ones, too
    encoding = tokenizer.encode("a")
    if 0 not in encoding.special_tokens_mask:
        raise damaged(f"the tokenizer of model '{name}' gives no token for the text 'a'")
    place = encoding.special_tokens_mask.index(0)
    before, after = encoding.tokens[:place], encoding.tokens[place:]
    after = after[encoding.special_tokens_mask[place:].count(0) :]
    missing_begin = [begin] if begin and before[:1] != [begin] else []
    missing_end = [end] if end and after[-1:] != [end] else []
    if not missing_begin and not missing_end:
        return tokenizer
    special = [*missing_begin, *before, *after, *missing_end]
    ids = {token: tokenizer.token_to_id(token) for token in special}
    if None in ids.values():
        raise damaged(f"the tokenizer of model '{name}' lacks the token of its tokenizer_config.json")
    single = [*missing_begin, *before, "$A", *after, *missing_end]
    tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=list(ids.items()))
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
