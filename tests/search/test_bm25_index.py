"""BM25: words and scores as bm25s has them, which passages are found, and in what order."""

import json
import typing
from collections.abc import Callable
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pytest
import Stemmer as Snowball
from workplaces import BAR, hits

from pipeline import InputError, run_benchmark, write_collection
from pipeline.config import SnowballStemmer, StopWords
from pipeline.core import Texts
from pipeline.search import Tokenization

Find = Callable[..., dict[str, list[tuple[str, float]]]]


def words(texts: list[str], tokenization: Tokenization) -> list[list[str]]:
    column = pa.chunked_array([pa.array(texts[:2], pa.string()), pa.array(texts[2:], pa.string())])
    found = tokenization.tokenize(Texts(column, column), BAR)
    return [[found.vocabulary[number] for number in numbers] for numbers in found]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """The hits of each query by BM25 over passages, and their scores."""

    def find(passages: dict[str, str], queries: list[str], top_k: int) -> dict[str, list[tuple[str, float]]]:
        asked = {str(number): text for number, text in enumerate(queries)}
        result = run_benchmark(
            {
                "name": "t",
                "data": write_collection(tmp_path / "data", passages, asked),
                "model": {"backend": "bm25", "stop_words": None, "stemmer": None, "k1": 0.9, "b": 0.4},
                "search": {"top_k": top_k},
                "evaluate": {"measures": ["mrr@1"]},
                "cache": str(tmp_path / "indexes"),
                "output": str(tmp_path / "results"),
            }
        )
        found: dict[str, list[tuple[str, float]]] = {query: [] for query in asked}
        for query, passage, score in hits(result.folder):
            found[query].append((passage, score))
        return found

    return find


def texts_of(root: Path, name: str) -> list[str]:
    lines = (root / "pipeline" / "data" / "sample" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.mark.parametrize("stemmer", [None, "english"])
def test_words_are_bm25s_s_own(stemmer: str | None, root: Path) -> None:
    text = ["A cat, a DOG!", "", "Größe x9", *texts_of(root, "corpus.jsonl")]
    own = Snowball.Stemmer(stemmer) if stemmer else None
    expected = bm25s.tokenize(text, stopwords="english", stemmer=own, return_ids=False, show_progress=False)
    assert words(text, Tokenization("english", stemmer)) == expected


def test_every_language_of_the_config_is_known() -> None:
    for name in typing.get_args(StopWords):
        words(["text"], Tokenization(name, None))
    for name in typing.get_args(SnowballStemmer):
        words(["text"], Tokenization(None, name))


def test_a_passage_without_a_word_of_the_query_is_not_found(find: Find) -> None:
    found = find({"a": "cat dog", "b": "fish", "c": "?", "d": "bird"}, ["cat", "unicorn", "?"], 3)
    assert [[passage for passage, _ in hits] for hits in found.values()] == [["a"], [], []]


def test_ties_stand_in_descending_order_of_id_also_across_the_cut(find: Find) -> None:
    passages = {"b": "cat dog", "e": "cat dog", "a": "cat cat", "d": "cat dog", "c": "cat dog"}
    assert [passage for passage, _ in find(passages, ["cat"], 3)["0"]] == ["a", "e", "d"]


def test_scores_and_passages_equal_bm25s_s(root: Path, find: Find) -> None:
    passages, queries = texts_of(root, "corpus.jsonl"), texts_of(root, "queries.jsonl")
    peer = bm25s.BM25(k1=0.9, b=0.4)
    peer.index(bm25s.tokenize(passages, stopwords=None, show_progress=False), show_progress=False)
    asked = bm25s.tokenize(queries, stopwords=None, show_progress=False)
    expected = peer.retrieve(asked, k=11, show_progress=False)
    found = find({str(row): text for row, text in enumerate(passages)}, queries, 10)
    in_one_order = 0
    for ranked, documents, scores in zip(found.values(), expected.documents, expected.scores, strict=True):
        padded = [score for _, score in ranked] + [0] * (10 - len(ranked))  # as bm25s scores the others
        np.testing.assert_allclose(padded, scores[:10], rtol=1e-6)
        if len(set(scores.tolist())) == 11:  # the others have ties
            in_one_order += 1
            assert [int(passage) for passage, _ in ranked] == documents[:10].tolist()
    assert in_one_order > 50


def test_passages_without_any_word_are_refused(find: Find) -> None:
    with pytest.raises(InputError, match="none of 2 passages holds a word"):
        find({"a": "!", "b": "?"}, ["cat"], 3)
