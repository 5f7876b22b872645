"""A model's tokenizer: one for its encoder, for chunks of passages and for counts of tokens.

It is transformers', as FlagEmbedding and sentence-transformers load it, and is kept with prepared models, so
that later runs import no transformers. Its probe, a hash of the token ids of fixed texts, is in the keys of
what is made of texts: a version of a library that reads them otherwise leads to other keys.

From version 5 on, transformers builds many tokenizers from the vocabulary of tokenizer.json alone, by the
class that a model's files name. With another class than the vocabulary's, words become single characters or
unknown tokens. So the kind of its tokenizer must be that of tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.core import machine
from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Facts
from pipeline.models.card import STATIC
from pipeline.models.files import TOKEN_IDS, Files, damaged, untrusted_code
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.hashing import hash_json
from pipeline.storage.store import Store, user_store

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

SCHEMA = 1
FILE = "tokenizer.json"
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
"""Texts in many languages, and what tokenizers often read in different ways: white space, look-alikes,
special tokens."""


class TokenizerSettings(NamedTuple):
    """What the tokenizer of a model is made by, besides its files."""

    name: str  # the model's, for messages
    trust_remote_code: bool = False  # whether Python files that come with the model may run
    end_tokens: tuple[str, str] = ("", "")  # the tokens to begin and end each text with; "" for none
    by_library: bool = True  # whether transformers loads it; a static model takes its tokenizer.json
    plain: bool = False  # whether texts get no special tokens, as in a static model


@dataclass(frozen=True)
class ModelTokenizer:
    """A model's tokenizer in a file, and what it gives for fixed texts."""

    path: Path  # its tokenizer.json
    probe: str  # a hash of its token ids of `PROBE_TEXTS`, and of the side it truncates at
    settings: TokenizerSettings  # what it was made by

    def load(self) -> Tokenizer:
        """The tokenizer; it does not pad, and truncates at the model's side."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.path))

    def of_library(self, tokenizer: PreTrainedTokenizerBase | Tokenizer) -> Tokenizer:
        """The same tokenizer as a library has loaded it with a model.

        Raises:
            InputError: It is another one.
        """
        loaded, probe = complete(tokenizer, self.settings)
        if probe != self.probe:
            raise InputError(
                f"model '{self.settings.name}': the library that runs it reads texts otherwise than "
                "AutoTokenizer does",
                allowed="one tokenizer for vectors, chunks and counts of tokens",
                fix="install the same versions of libraries wherever the model runs",
            )
        return loaded


def prepare_tokenizer(
    files: Files, route: tuple[str, str], settings: TokenizerSettings, cache: Path | None
) -> ModelTokenizer:
    """The tokenizer of a model, from the store of prepared models or made now.

    A `route` is the kind of the module that takes the tokens, and the tokenizer's folder inside the model's.
    `cache` is the folder of artifacts that is used where the user's store cannot be written.

    Raises:
        InputError: See `load_tokenizer`.
    """
    kind, folder = route
    settings = settings._replace(by_library=kind != "StaticEmbedding", plain=kind in STATIC)
    plain = {
        "schema": SCHEMA,
        "files": files.identity(TOKEN_IDS),
        "folder": folder,
        "settings": [*settings[1:]],
        **{package: metadata.version(package) for package in ("transformers", "tokenizers")},
    }
    recipe = Recipe("tokenizer", plain)
    stores = [user_store(), *([Store(cache)] if cache else [])]
    artifact = next(filter(None, (store.load(recipe) for store in stores)), None)
    if artifact is None:
        artifact = _make(recipe, stores[-1].for_models(recipe), files, folder, settings)
    return ModelTokenizer((artifact.folder / FILE).absolute(), artifact.facts["probe"], settings)


def _make(recipe: Recipe, store: Store, files: Files, folder: str, settings: TokenizerSettings) -> Artifact:
    """Load a model's tokenizer and keep it; arguments as in `prepare_tokenizer`."""

    def build(draft: Draft) -> Facts:
        tokenizer, probe = load_tokenizer(files.small_files / folder, settings)
        with draft.file(FILE) as path:
            tokenizer.save(str(path))
        files.check_text_files()
        return {"probe": probe}

    with machine.preparing():
        return store.make(recipe, build)


def token_spans(tokenizer: ModelTokenizer) -> Callable[[list[str], int], list[list[tuple[int, int]] | None]]:
    """A function that gives the characters [start, stop) of each token of whole texts, special ones left out.

    Its second argument is a number of tokens: of a text that has no more, it gives None.
    """
    loaded = _untruncated(tokenizer)

    def spans(texts: list[str], most: int) -> list[list[tuple[int, int]] | None]:
        encodings = loaded.encode_batch(texts, add_special_tokens=False)
        return [encoding.offsets if len(encoding) > most else None for encoding in encodings]

    return spans


def token_counter(tokenizer: ModelTokenizer) -> Callable[[list[str]], list[int]]:
    """A function that counts the tokens of whole texts, special tokens included."""
    loaded = _untruncated(tokenizer)
    return lambda texts: [len(encoding.ids) for encoding in loaded.encode_batch_fast(texts)]


def _untruncated(tokenizer: ModelTokenizer) -> Tokenizer:
    loaded = tokenizer.load()
    loaded.no_padding()
    loaded.no_truncation()
    return loaded


def load_tokenizer(folder: Path, settings: TokenizerSettings) -> tuple[Tokenizer, str]:
    """The tokenizer of the model in `folder`, and its probe.

    Raises:
        InputError: It is damaged, or is not in the package tokenizers; or transformers takes one of another
            kind than the model's own tokenizer.json.
    """
    tokenizer = _own_tokenizer(folder, settings.name)
    if settings.by_library:
        library = _load(folder, settings)
        fast = getattr(library, "backend_tokenizer", None)  # `complete` refuses one without
        used = checked(fast, settings.name) if fast is not None else None
        if tokenizer is not None and used is not None and type(tokenizer.model) is not type(used.model):
            own, other = (type(each.model).__name__ for each in (tokenizer, used))
            raise InputError(
                f"model '{settings.name}': its tokenizer is a {own} by its tokenizer.json, and a {other} by "
                f"transformers, which takes the class {type(library).__name__}",
                allowed="a model whose tokenizer transformers reads as its file says",
                fix="set tokenizer_class in its tokenizer_config.json to the class that it was trained with, "
                "or to PreTrainedTokenizerFast, which takes tokenizer.json as it is for most architectures",
            )
        return complete(library, settings)
    if tokenizer is None:
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


def complete(
    loaded: PreTrainedTokenizerBase | Tokenizer, settings: TokenizerSettings
) -> tuple[Tokenizer, str]:
    """The tokenizer itself, or that inside one of transformers', as the model needs it, and its probe.

    Raises:
        InputError: Transformers' has none inside, as a few are written in Python alone; it cannot encode a
            text; or the end tokens are unknown.
    """
    from tokenizers import Tokenizer

    tokenizer = loaded if isinstance(loaded, Tokenizer) else getattr(loaded, "backend_tokenizer", None)
    if tokenizer is None:
        raise InputError(
            f"model '{settings.name}' has only a slow tokenizer, {type(loaded).__name__}",
            allowed="a tokenizer of the package tokenizers, as in tokenizer.json",
            fix="convert it, or encode elsewhere and set model.backend to precomputed",
        )
    if settings.plain:
        tokenizer.post_processor = None  # a mean of word vectors takes no special tokens
    if any(settings.end_tokens):
        _add_end_tokens(tokenizer, settings)
    of_file = (tokenizer.truncation or {}).get("direction", "right")
    side = getattr(loaded, "truncation_side", of_file)  # transformers' own
    tokenizer.no_padding()
    tokenizer.no_truncation()
    try:
        tokens = [encoding.ids for encoding in tokenizer.encode_batch(list(PROBE_TEXTS))]
    except Exception as error:  # tokenizers raises this class itself
        raise damaged(f"the tokenizer of model '{settings.name}' cannot encode a text: {error}") from None
    tokenizer.enable_truncation(512, direction=side)  # for the side alone
    return tokenizer, hash_json([SCHEMA, side, tokens])


def _add_end_tokens(tokenizer: Tokenizer, settings: TokenizerSettings) -> None:
    """Let a tokenizer begin and end each text with the end tokens, if it does not.

    From version 5 on, transformers applies `add_bos_token` and `add_eos_token` of tokenizer_config.json to
    few classes of tokenizers. A model that pools the last token gives other vectors without its end token.
    """
    from tokenizers.processors import TemplateProcessing

    name, (begin, end) = settings.name, settings.end_tokens
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
        return
    special = [*missing_begin, *before, *after, *missing_end]
    ids = {token: tokenizer.token_to_id(token) for token in special}
    if None in ids.values():
        raise damaged(f"the tokenizer of model '{name}' lacks the token of its tokenizer_config.json")
    single = [*missing_begin, *before, "$A", *after, *missing_end]
    tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=list(ids.items()))


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
