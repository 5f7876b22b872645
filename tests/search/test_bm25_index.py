"""BM25: words and scores as bm25s has them, which passages are found, and in what order."""

from __future__ import annotations

import json
import typing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from search.by_definition import BAR

from pipeline import InputError
from pipeline.config.model import SnowballStemmer, StopWords
from pipeline.core.order import descending_id_rank
from pipeline.core.records import Ranking, Texts
from pipeline.search import bm25_index
from pipeline.search.bm25_index import Tokenization, TokenizedTexts

PLAIN = Tokenization(stop_words=None, stemmer=None)


def words(texts: list[str], tokenization: Tokenization = PLAIN) -> TokenizedTexts:
    column = pa.chunked_array([pa.array(texts[:2], pa.string()), pa.array(texts[2:], pa.string())])
    return tokenization.tokenize(Texts(column, column), BAR)


def strings(found: TokenizedTexts) -> list[list[str]]:
    return [[found.vocabulary[number] for number in numbers] for numbers in found]


def find(passages: list[str], queries: list[str], top_k: int, ids: list[str] | None = None) -> Ranking:
    index = bm25_index.build(words(passages), 0.9, 0.4)
    names = pa.chunked_array([pa.array(ids or [str(row) for row in range(len(passages))])])
    return bm25_index.search(index, words(queries), top_k, descending_id_rank(names), BAR)


def texts_of(root: Path, name: str) -> list[str]:
    lines = (root / "pipeline" / "data" / "sample" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.mark.parametrize("stemmer", [None, "english"])
def test_words_are_bm25s_s_own(stemmer: str | None, root: Path) -> None:
    import bm25s
    import Stemmer as Snowball

    text = ["A cat, a DOG!", "", "Größe x9", *texts_of(root, "corpus.jsonl")]
    own = Snowball.Stemmer(stemmer) if stemmer else None
    expected = bm25s.tokenize(text, stopwords="english", stemmer=own, return_ids=False, show_progress=False)
    assert strings(words(text, Tokenization("english", stemmer))) == expected


def test_every_language_of_the_config_is_known() -> None:
    for name in typing.get_args(StopWords):
        words(["text"], Tokenization(name, None))
    for name in typing.get_args(SnowballStemmer):
        words(["text"], Tokenization(None, name))


def test_a_passage_without_a_word_of_the_query_is_not_found() -> None:
    ranking = find(["cat dog", "fish", "", "bird"], ["cat", "unicorn", ""], 3)
    assert ranking.passages.tolist() == [[0, -1, -1], [-1, -1, -1], [-1, -1, -1]]
    assert np.isneginf(ranking.scores[ranking.passages < 0]).all()


def test_ties_stand_in_descending_order_of_id_also_across_the_cut() -> None:
    ids = ["b", "e", "a", "d", "c"]
    ranking = find(["cat dog", "cat dog", "cat cat", "cat dog", "cat dog"], ["cat"], 3, ids)
    assert [ids[row] for row in ranking.passages[0]] == ["a", "e", "d"]


def test_scores_and_passages_equal_bm25s_s(root: Path) -> None:
    import bm25s

    passages, queries = texts_of(root, "corpus.jsonl"), texts_of(root, "queries.jsonl")
    peer = bm25s.BM25(k1=0.9, b=0.4)
    peer.index(bm25s.tokenize(passages, stopwords=None, show_progress=False), show_progress=False)
    asked = bm25s.tokenize(queries, stopwords=None, show_progress=False)
    expected = peer.retrieve(asked, k=11, show_progress=False)
    ranking = find(passages, queries, 10)
    scores = np.where(ranking.passages < 0, 0, ranking.scores)  # bm25s scores what it does not find 0
    np.testing.assert_allclose(scores, expected.scores[:, :10], rtol=1e-6)
    one_order = [len(set(row)) == 11 for row in expected.scores.tolist()]
    assert sum(one_order) > 50  # the others have ties
    assert (ranking.passages[one_order] == expected.documents[one_order, :10]).all()


def test_passages_without_any_word_are_refused() -> None:
    with pytest.raises(InputError, match="none of 2 passages holds a word"):
        bm25_index.build(words(["", "?"]), 0.9, 0.4)
