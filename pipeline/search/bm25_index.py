"""BM25 by the package bm25s: texts as word numbers, and for every word its score in each passage that has it.

The scores are Lucene's BM25 ("accurate" in Kamphuis et al., 2020), as Pyserini computes them:
`log(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / mean length))`. bm25s adds a
query's scores in float32, in the order of its words; `inverted_index` adds in float64 and rounds once, so it
would give many passages other last bits.
"""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.order import sort_hits
from pipeline.core.records import Facts, Float32, Int32, Int64, RaggedRows, Ranking, Role, Texts
from pipeline.search.candidates import empty_ranking
from pipeline.storage import ragged_shards
from pipeline.storage.artifacts import Artifact, Draft

if TYPE_CHECKING:
    from bm25s import BM25

IDS, ENDS, VOCABULARY = "ids.npy", "ends.npy", "vocabulary.json"


@dataclass(frozen=True)
class TokenizedTexts:
    """Texts as word numbers; iterating gives each text's numbers as a list, one text in memory at a time."""

    ids: Int32  # int32 [words], the word numbers of all texts one after the other
    ends: Int64  # int64 [texts], where each text ends in `ids`
    vocabulary: list[str]

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for end in self.ends.tolist():
            yield self.ids[start:end].tolist()
            start = end

    def take(self, texts: Int64) -> TokenizedTexts:
        """Some of the texts, by their numbers, int64 [n]."""
        rows = ragged_shards.take_rows(RaggedRows(self.ends, (self.ids,)), texts)
        return TokenizedTexts(rows.columns[0], rows.ends, self.vocabulary)


@dataclass(frozen=True)
class Tokenization:
    """How texts are split into words, by the package bm25s, and how these are stored."""

    stop_words: str | None  # language of the stop words to leave out; None keeps all words
    stemmer: str | None  # language of the Snowball stemmer; None is no stemming
    model: ClassVar[None] = None  # no model's tokens

    def ingredients(self, _: Role) -> Facts:
        """The part of the words' key: settings, and versions of the packages that make them."""
        from importlib.metadata import version

        stemmer = [self.stemmer, version("PyStemmer")] if self.stemmer else None
        return {"model": {"bm25s": version("bm25s"), "stop_words": self.stop_words, "stemmer": stemmer}}

    def tokenize(self, texts: Texts, bar: Bar) -> TokenizedTexts:
        """The words of texts, in lower case, of two characters or more; the bar counts texts."""
        import Stemmer
        from bm25s.tokenization import Tokenizer

        stemmer = Stemmer.Stemmer(self.stemmer) if self.stemmer else None
        tokenizer = Tokenizer(stopwords=self.stop_words, stemmer=stemmer)
        ids, ends = array("i"), array("q")
        every_text = (text for chunk in texts.texts.chunks for text in chunk.to_pylist())
        for numbers in tokenizer.streaming_tokenize(every_text, allow_empty=False):
            ids.extend(numbers)
            ends.append(len(ids))
            bar.update()
        return TokenizedTexts(
            np.array(ids, np.int32), np.array(ends, np.int64), list(tokenizer.get_vocab_dict())
        )

    def save(self, draft: Draft, words: TokenizedTexts) -> None:
        """Write words as the files of an artifact."""
        draft.save_array(IDS, words.ids)
        draft.save_array(ENDS, words.ends)
        with draft.file(VOCABULARY) as path:
            path.write_text(json.dumps(words.vocabulary, ensure_ascii=False), encoding="utf-8")

    def open(self, artifact: Artifact) -> TokenizedTexts:
        """The words that `save` wrote, the arrays memory-mapped."""
        vocabulary = json.loads((artifact.folder / VOCABULARY).read_text(encoding="utf-8"))
        return TokenizedTexts(artifact.array(IDS), artifact.array(ENDS), vocabulary)


def build(passages: TokenizedTexts, k1: float, b: float) -> BM25:
    """The bm25s index of some passages; a hit's number is the passage's row."""
    bm25s = _import()
    if not len(passages.ids):
        raise InputError(
            f"none of {len(passages):,} passages holds a word",
            allowed="words of two characters or more that are not stop words",
            fix="check the collection, or set model.stop_words to its language",
        )
    index = bm25s.BM25(k1=k1, b=b, method="lucene", csc_backend="scipy")
    vocabulary = {word: number for number, word in enumerate(passages.vocabulary)}
    tokenized = bm25s.tokenization.Tokenized(passages, vocabulary)
    index.index(tokenized, create_empty_token=False, show_progress=False)
    return index


def open_postings(artifact: Artifact) -> BM25:
    """The index that `save` wrote, its scores memory-mapped."""
    return _import().BM25.load(artifact.folder, mmap=True)


def search(index: BM25, queries: TokenizedTexts, top_k: int, id_rank: Int64, bar: Bar) -> Ranking:
    """The best passages of each query, among those that share a word with it.

    Args:
        index: The index of n passages.
        queries: A word that occurs twice counts twice; a word that no passage has is left out.
        top_k: Hits kept for each query; fewer where fewer passages share a word.
        id_rank: int64 [n], `pipeline.core.order.descending_id_rank` of the passage ids.
        bar: Counts queries.

    Returns:
        [queries, min(top_k, n)], ties in the contract's order, also those across the last rank.
    """
    ranking = empty_ranking(len(queries), min(top_k, len(id_rank)))
    number = np.array([index.vocab_dict.get(word, -1) for word in queries.vocabulary], np.int64)
    for row, words in enumerate(queries):
        known = number[np.array(words, np.int64)]
        scores = index.get_scores_from_ids(known[known >= 0])
        hits, best_scores = _best(scores, ranking.passages.shape[1], id_rank)
        ranking.passages[row, : len(hits)], ranking.scores[row, : len(hits)] = hits, best_scores
        bar.update()
    return ranking


def _import() -> ModuleType:
    """The package bm25s, without its log messages about each step."""
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    module: ModuleType = bm25s
    return module


def _best(scores: Float32, k: int, id_rank: Int64) -> tuple[Int64, Float32]:
    """The best k of one query's scores [n] above 0; all that tie with the k-th are sorted before the cut."""
    hits = np.flatnonzero(scores > 0)
    if len(hits) > k:
        last = np.partition(scores[hits], -k)[-k]
        hits = hits[scores[hits] >= last]
    passages, ordered = sort_hits(hits[None], scores[hits][None], id_rank)
    return passages[0, :k], ordered[0, :k]
