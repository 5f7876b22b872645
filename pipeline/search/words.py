"""Texts as word numbers: how texts are cut into words, and how the words of all texts are stored."""

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
class Words:
    """Texts as word numbers; iterating gives each text's numbers as a list, one text in memory at a time.

    Attributes:
        ids: int32 [words], of all texts one after the other.
        ends: int64 [texts], where each text's words stop.
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
    """How texts are cut into words, by the package bm25s.

    Attributes:
        stop_words: The language whose stop words are left out; None keeps all words.
        stemmer: The Snowball stemmer's language; None is no stemming.
    """

    stop_words: str | None
    stemmer: str | None

    def recipe(self) -> dict[str, Any]:
        """What stands in the key of the words: settings, and versions of the packages that make them."""
        from importlib.metadata import version

        stemmer = [self.stemmer, version("PyStemmer")] if self.stemmer else None
        return {"bm25s": version("bm25s"), "stop_words": self.stop_words, "stemmer": stemmer}

    def words(self, texts: Texts, bar: Bar) -> Words:
        """The words of some texts, in lower case, of two characters or more.

        Args:
            texts: Any number.
            bar: Counts the texts that are done.
        """
        import Stemmer
        from bm25s.tokenization import Tokenizer

        stemmer = Stemmer.Stemmer(self.stemmer) if self.stemmer else None
        tokenizer = Tokenizer(stopwords=self.stop_words, stemmer=stemmer)
        ids, ends = array("i"), array("q")
        for numbers in tokenizer.streaming_tokenize(_each(texts), allow_empty=False):
            ids.extend(numbers)
            ends.append(len(ids))
            bar.update()
        return Words(np.array(ids, np.int32), np.array(ends, np.int64), list(tokenizer.get_vocab_dict()))


def _each(texts: Texts) -> Iterator[str]:
    for chunk in texts.texts.chunks:
        yield from chunk.to_pylist()


def save_words(draft: Draft, words: Words) -> None:
    """Write words as the files of an artifact."""
    for name, values in ((IDS, words.ids), (ENDS, words.ends)):
        with draft.file(name) as path, open(path, "wb") as file:
            np.save(file, values, allow_pickle=False)
    with draft.file(VOCABULARY) as path:
        path.write_text(json.dumps(words.vocabulary, ensure_ascii=False), encoding="utf-8")


def open_words(artifact: Artifact) -> Words:
    """The words that `save_words` wrote, the arrays memory-mapped."""
    ids, ends = (np.load(artifact.path(name), mmap_mode="r", allow_pickle=False) for name in (IDS, ENDS))
    return Words(ids, ends, json.loads(artifact.path(VOCABULARY).read_text(encoding="utf-8")))
