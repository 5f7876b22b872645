"""The `bm25` backend: no model and no vectors, passages and queries are bags of words (bm25s)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipeline.config import IndexConfig, ModelSettings, SearchConfig, setting
from pipeline.core.progress import Bar
from pipeline.core.records import Texts
from pipeline.models.model import Role
from pipeline.words import Words

StopWords = Literal[
    "english", "english_plus", "german", "dutch", "french", "spanish", "portuguese", "italian", "russian",
    "swedish", "norwegian", "danish", "chinese", "turkish", "korean",
]  # fmt: skip
"""Languages whose stop words bm25s knows."""
SnowballStemmer = Literal[
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german",
    "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian",
    "porter", "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish",
    "yiddish",
]  # fmt: skip
"""Snowball's algorithms."""


class Bm25Settings(ModelSettings):
    """BM25: no model and no vectors."""

    backend: Literal["bm25"] = ModelSettings.narrowed("backend", "bm25")
    k1: float = setting(0.9, "how soon repeats of a word stop adding to a score", shapes="index", ge=0)
    b: float = setting(0.4, "how much a passage's length counts", shapes="index", ge=0, le=1)
    stop_words: StopWords | None = setting(
        "english", "whose stop words are left out; null keeps all", shapes="passages queries", keyed=False
    )
    stemmer: SnowballStemmer | None = setting(
        "english", "a Snowball stemmer; null is none", shapes="passages queries", keyed=False
    )

    def check(self, index: IndexConfig, search: SearchConfig) -> None:
        """See `ModelSettings.check`."""
        if index != IndexConfig() or search.parameters:
            raise ValueError(
                "backend 'bm25' makes an index of its own: "
                "leave out the section 'index' and search.parameters"
            )
        if search.memory_mb is not None or search.device not in ("auto", "cpu"):
            raise ValueError(
                "backend 'bm25' holds its index in memory, and searches it on the CPU: "
                "leave out search.memory_mb and search.device"
            )

    def open(self) -> Lexical:
        """See `ModelSettings.open`."""
        return Lexical(self.stop_words, self.stemmer)


@dataclass(frozen=True)
class Lexical:
    """How texts become words.

    Attributes:
        stop_words: The language whose stop words bm25s leaves out; None keeps all words.
        stemmer: The Snowball stemmer; None keeps words as they stand.
    """

    stop_words: str | None
    stemmer: str | None

    def recipe(self, role: Role) -> dict[str, Any]:
        """What stands in the key of the words: the same for both roles."""
        from importlib.metadata import version

        stemmer = [self.stemmer, version("PyStemmer")] if self.stemmer else None
        return {"bm25s": version("bm25s"), "stop_words": self.stop_words, "stemmer": stemmer}

    def tokenize(self, texts: Texts, bar: Bar) -> Words:
        """The words of some texts, as bm25s cuts them: two letters or more, in lower case.

        Args:
            texts: Any number.
            bar: Told of every text.
        """
        import Stemmer
        from bm25s.tokenization import Tokenizer

        stemmer = Stemmer.Stemmer(self.stemmer) if self.stemmer else None
        tokenizer = Tokenizer(stopwords=self.stop_words, stemmer=stemmer)
        ids, ends = array("i"), array("q")
        for words in tokenizer.streaming_tokenize(_each(texts), allow_empty=False):
            ids.extend(words)
            ends.append(len(ids))
            bar.update()
        return Words(np.array(ids, np.int32), np.array(ends, np.int64), list(tokenizer.get_vocab_dict()))


def _each(texts: Texts) -> Iterator[str]:
    for chunk in texts.texts.chunks:
        yield from chunk.to_pylist()
