"""Texts as word numbers: how texts are split into words, and how the words of all texts are stored."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.core.progress import Bar
from pipeline.core.records import Int32, Int64, Texts
from pipeline.storage.artifacts import Artifact, Draft

IDS, ENDS, VOCABULARY = "ids.npy", "ends.npy", "vocabulary.json"


@dataclass(frozen=True)
class TokenizedTexts:
    """Texts as word numbers; iterating gives each text's numbers as a list, one text in memory at a time.

    Attributes:
        ids: int32 [words], the word numbers of all texts one after the other.
        ends: int64 [texts], where each text ends in `ids`.
        vocabulary: The word of each number.
    """

    ids: Int32
    ends: Int64
    vocabulary: list[str]

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for end in self.ends.tolist():
            yield self.ids[start:end].tolist()
            start = end


@dataclass(frozen=True)
class Tokenization:
    """How texts are split into words, by the package bm25s.

    Attributes:
        stop_words: Language of the stop words to leave out; None keeps all words.
        stemmer: Language of the Snowball stemmer; None is no stemming.
    """

    stop_words: str | None
    stemmer: str | None

    def recipe(self) -> dict[str, Any]:
        """The part of the words' key: settings, and versions of the packages that make them."""
        from importlib.metadata import version

        stemmer = [self.stemmer, version("PyStemmer")] if self.stemmer else None
        return {"bm25s": version("bm25s"), "stop_words": self.stop_words, "stemmer": stemmer}

    def tokenize(self, texts: Texts, bar: Bar) -> TokenizedTexts:
        """The words of texts, in lower case, of two characters or more; the bar counts texts."""
        import Stemmer
        from bm25s.tokenization import Tokenizer

        stemmer = Stemmer.Stemmer(self.stemmer) if self.stemmer else None
        tokenizer = Tokenizer(stopwords=self.stop_words, stemmer=stemmer)
        ids, ends = array("i"), array("q")
        each = (text for chunk in texts.texts.chunks for text in chunk.to_pylist())
        for numbers in tokenizer.streaming_tokenize(each, allow_empty=False):
            ids.extend(numbers)
            ends.append(len(ids))
            bar.update()
        return TokenizedTexts(
            np.array(ids, np.int32), np.array(ends, np.int64), list(tokenizer.get_vocab_dict())
        )


def save_tokenized(draft: Draft, words: TokenizedTexts) -> None:
    """Write words as the files of an artifact."""
    draft.save_array(IDS, words.ids)
    draft.save_array(ENDS, words.ends)
    with draft.file(VOCABULARY) as path:
        path.write_text(json.dumps(words.vocabulary, ensure_ascii=False), encoding="utf-8")


def open_tokenized(artifact: Artifact) -> TokenizedTexts:
    """The words that `save_tokenized` wrote, the arrays memory-mapped."""
    vocabulary = json.loads(artifact.path(VOCABULARY).read_text(encoding="utf-8"))
    return TokenizedTexts(artifact.array(IDS), artifact.array(ENDS), vocabulary)
