"""The `bm25` backend: no model and no vectors, passages and queries are bags of words (bm25s)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.config import ModelConfig
from pipeline.core.progress import Bar
from pipeline.core.records import Texts
from pipeline.models.model import Role
from pipeline.words import Words


@dataclass(frozen=True)
class Lexical:
    """How texts become words.

    Attributes:
        stop_words: The language whose stop words bm25s leaves out; None keeps all words.
        stemmer: The Snowball stemmer; None keeps words as they stand.
    """

    stop_words: str | None
    stemmer: str | None

    @classmethod
    def of(cls, config: ModelConfig) -> Lexical:
        """As a config says it."""
        return cls(config.stop_words, config.stemmer)

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
