"""BM25: what counts as a word, what a score is, which passages are found, and in what order."""

from __future__ import annotations

import json
import math
import typing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.api import run_benchmark
from pipeline.config.files import load_config
from pipeline.config.model import SnowballStemmer, StopWords
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.order import descending_id_rank
from pipeline.core.records import Ranking, Texts
from pipeline.search import bm25_index
from pipeline.search.bm25_index import Tokenization, TokenizedTexts, open_tokenized, save_tokenized
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store

PLAIN = Tokenization(stop_words=None, stemmer=None)


def words(texts: list[str], tokenization: Tokenization = PLAIN) -> TokenizedTexts:
    column = pa.chunked_array([pa.array(texts[:2], pa.string()), pa.array(texts[2:], pa.string())])
    with silent("", None, "") as bar:
        return tokenization.tokenize(Texts(column, column), bar)


def strings(found: TokenizedTexts) -> list[list[str]]:
    return [[found.vocabulary[number] for number in numbers] for numbers in found]


def find(passages: list[str], queries: list[str], top_k: int, ids: list[str] | None = None) -> Ranking:
    index = bm25_index.build(words(passages), 0.9, 0.4)
    names = pa.chunked_array([pa.array(ids or [str(row) for row in range(len(passages))])])
    with silent("", None, "") as bar:
        return bm25_index.search(index, words(queries), top_k, descending_id_rank(names), bar)


def test_words_are_two_letters_or_more_in_lower_case() -> None:
    assert strings(words(["A cat, a DOG!", "", "Größe x9"])) == [["cat", "dog"], [], ["größe", "x9"]]


def test_stop_words_go_and_stems_stay() -> None:
    found = words(["the cats and the running dogs", "runs"], Tokenization("english", "english"))
    assert strings(found) == [["cat", "run", "dog"], ["run"]]


@pytest.mark.parametrize("stemmer", [None, "english"])
def test_words_are_bm25s_s_own(stemmer: str | None, root: Path) -> None:
    import bm25s
    import Stemmer as Snowball

    text = (root / "pipeline/data/sample/corpus.jsonl").read_text(encoding="utf-8").splitlines()
    own = Snowball.Stemmer(stemmer) if stemmer else None
    expected = bm25s.tokenize(text, stopwords="english", stemmer=own, return_ids=False, show_progress=False)
    assert strings(words(text, Tokenization("english", stemmer))) == expected


def test_every_language_of_the_config_is_known() -> None:
    for name in typing.get_args(StopWords):
        words(["text"], Tokenization(name, None))
    for name in typing.get_args(SnowballStemmer):
        words(["text"], Tokenization(None, name))


def test_words_come_back_from_disk(tmp_path: Path) -> None:
    before = words(["one two", "", "two three"])

    def build(draft: typing.Any) -> tuple[dict[str, int], dict[str, int]]:
        save_tokenized(draft, before)
        return {}

    artifact = Store(tmp_path).make(Recipe("passages", {}), build)
    assert strings(open_tokenized(artifact)) == strings(before)


def test_a_score_is_lucene_s() -> None:
    ranking = find(["cat cat dog", "dog fish fish fish"], ["cat fish"], 5)
    mean, k1, b = 3.5, 0.9, 0.4
    idf = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    cat = idf * 2 / (2 + k1 * (1 - b + b * 3 / mean))
    fish = idf * 3 / (3 + k1 * (1 - b + b * 4 / mean))
    assert ranking.passages.tolist() == [[1, 0]]
    np.testing.assert_allclose(ranking.scores, [[fish, cat]], rtol=1e-6)


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

    sample = root / "pipeline" / "data" / "sample"
    passages, queries = (
        [json.loads(line)["text"] for line in (sample / name).read_text(encoding="utf-8").splitlines()]
        for name in ("corpus.jsonl", "queries.jsonl")
    )
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


CONFIG = """
name: t
data: {source: sample}
model: {backend: bm25}
evaluate: {measures: [ndcg@10, recall@100]}
"""


def test_a_benchmark_runs_on_bm25(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG, encoding="utf-8")
    settings = [f"cache={tmp_path}/indexes", f"output={tmp_path}/results"]
    first = run_benchmark(load_config(tmp_path / "c.yaml", settings))
    assert first.metrics["metrics"]["ndcg@10"] == pytest.approx(
        0.6453, abs=5e-5
    )  # pytrec_eval on bm25s's run
    again = run_benchmark(load_config(tmp_path / "c.yaml", [*settings, "model.k1=1.5", "model.b=0.75"]))
    reused = {stage["stage"]: stage["reused"] for stage in again.metrics["stages"]}
    assert [name for name, kept in reused.items() if not kept] == ["index", "search", "evaluate"]
    assert again.metrics["metrics"]["ndcg@10"] == pytest.approx(0.6375, abs=5e-5)
