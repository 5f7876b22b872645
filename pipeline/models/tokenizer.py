"""A model's tokenizer: one for its encoder, for chunks of passages and for counts of tokens.

It is transformers', as FlagEmbedding and sentence-transformers load it. It is made once and kept with
prepared models, so that later runs import no transformers. Its probe, a hash of the token ids of fixed texts,
is in the keys of what is made of texts: a version of a library that reads them otherwise leads to other keys,
and one that reads them alike to the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.models.files import Files, damaged
from pipeline.models.library_tokenizer import (
    PROBE_TEXTS,
    TokenizerSettings,
    complete,
    fast_tokenizer,
    load_tokenizer,
)
from pipeline.storage.artifacts import Draft, Recipe
from pipeline.storage.hashing import hash_json
from pipeline.storage.store import Store, user_store

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

SCHEMA = 1
FILE = "tokenizer.json"


@dataclass(frozen=True)
class ModelTokenizer:
    """A model's tokenizer in a file, and what it gives for fixed texts."""

    path: Path  # its tokenizer.json
    probe: str  # a hash of its token ids of `PROBE_TEXTS`, and of the side it truncates at
    settings: TokenizerSettings  # what it was made by

    def load(self) -> Tokenizer:
        """The tokenizer; it neither pads nor truncates."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.path))

    def of_library(self, tokenizer: PreTrainedTokenizerBase | Tokenizer) -> Tokenizer:
        """The same tokenizer as a library has loaded it with a model.

        Raises:
            InputError: It is another one.
        """
        name = self.settings.name
        loaded = fast_tokenizer(name, tokenizer) if self.settings.by_library else tokenizer
        loaded = complete(loaded, self.settings)
        if probe_of(loaded, name) != self.probe:
            raise InputError(
                f"model '{name}': the library that runs it reads texts otherwise than AutoTokenizer does",
                allowed="one tokenizer for vectors, chunks and counts of tokens",
                fix="install the same versions of libraries wherever the model runs",
            )
        return loaded


def probe_of(tokenizer: Tokenizer, name: str) -> str:
    """The probe (see `ModelTokenizer`) of a tokenizer of the model `name`.

    Raises:
        InputError: It cannot encode a text.
    """
    side = (tokenizer.truncation or {}).get("direction", "right")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    try:
        tokens = [encoding.ids for encoding in tokenizer.encode_batch(list(PROBE_TEXTS))]
    except Exception as error:  # tokenizers raises this class itself
        raise damaged(f"the tokenizer of model '{name}' cannot encode a text: {error}") from None
    tokenizer.enable_truncation(512, direction=side)  # for the side alone
    return hash_json([SCHEMA, side, tokens])


def prepare_tokenizer(
    files: Files, folder: str, settings: TokenizerSettings, cache: Path | None
) -> ModelTokenizer:
    """The tokenizer of a model, from the store of prepared models or made now.

    Args:
        files: The model's.
        folder: The tokenizer's, relative to the model's.
        settings: What it is made by, besides the files.
        cache: The folder of artifacts that is used where the user's store cannot be written.

    Raises:
        InputError: See `load_tokenizer`.
    """
    plain = {
        "schema": SCHEMA,
        "files": files.identity_of(files.text_files()),
        "folder": folder,
        "settings": [*settings[1:]],
        **{package: metadata.version(package) for package in ("transformers", "tokenizers")},
    }
    recipe = Recipe("tokenizer", plain)
    stores = [user_store(), *([Store(cache)] if cache else [])]
    artifact = next(filter(None, (store.load(recipe) for store in stores)), None)
    if artifact is None:

        def build(draft: Draft) -> Facts:
            tokenizer = load_tokenizer(files.small_files / folder, settings)
            with draft.file(FILE) as path:
                tokenizer.save(str(path))
            files.check_text_files()
            return {"probe": probe_of(tokenizer, settings.name)}

        with machine.preparing():
            artifact = stores[-1].for_models(recipe).make(recipe, build)
    return ModelTokenizer((artifact.folder / FILE).absolute(), artifact.facts["probe"], settings)


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
