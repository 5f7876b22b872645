"""Judgments by answers, against a plain version of FlagEmbedding's `evaluate_qa_recall`.

FlagEmbedding's own function is in its repository, and in none of its packages.
"""

from __future__ import annotations

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
import regex

from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Qrels, Ranking, Texts
from pipeline.metrics.answers import check_measures, depth_of, judge_by_answers
from pipeline.metrics.names import parse_measures
from pipeline.metrics.scoring import compute_measures

NONE = Qrels(*np.zeros((3, 0), np.int64))
WORDS = ["the", "Owl", "owls", "caf\u00e9", "CAFE\u0301", "1.5", "1,5", "rock 'n' roll", "-", "", " ", "a\tb"]
WORDS += ["U.S.", "\u03a3\u0391\u03a3", "\u03c3\u03b1\u03c2", "\u0e44\u0e17\u0e22", "\ud55c\uad6d"]
WORDS += ["\u6771\u4eac", "\u0130stanbul", "\u00df", "\u200b"]


def plain_judgment(answers: list[str], text: str) -> bool:
    """Whether the tokens of an answer stand in the text, window by window."""

    def tokens(each: str) -> list[str]:
        found = regex.finditer(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", unicodedata.normalize("NFD", each))
        return [match.group().lower() for match in found]

    words = tokens(text)
    return any(
        words[start : start + len(answer)] == answer
        for answer in map(tokens, answers)
        for start in range(len(words) - len(answer) + 1)
    )


def collection_of(texts: list[str], answers: list[list[str]]) -> Collection:
    def column(values: list[str]) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(values, pa.string())])

    passages = Texts(column([f"p{row}" for row in range(len(texts))]), column(texts))
    queries = Texts(column([f"q{row}" for row in range(len(answers))]), column(["?"] * len(answers)))
    listed = pa.chunked_array([pa.array(answers, pa.list_(pa.string()))])
    return Collection(passages, queries, column([]), NONE, {}, listed)


@pytest.mark.parametrize("block", [3, 10_000])
def test_passages_are_judged_as_by_the_plain_version(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.metrics.answers.BLOCK", block)
    random = np.random.default_rng(3)
    texts = [" ".join(random.choice(WORDS, random.integers(0, 12))) for _ in range(40)]
    answers = [
        [" ".join(random.choice(WORDS, size)) for size in random.integers(1, 3, random.integers(0, 4))]
        for _ in range(60)
    ]
    rows = np.array([random.permutation(40)[:20] for _ in answers])
    rows[5, 10:] = -1
    ranking = Ranking(rows, np.where(rows < 0, -np.inf, -np.arange(20.0)))
    made = judge_by_answers(collection_of(texts, answers), ranking, depth=12)
    expected = {
        (query, passage): int(plain_judgment(answers[query], texts[passage]))
        for query, passages in enumerate(rows[:, :12].tolist())
        for passage in passages
        if passage >= 0
    }
    judged = zip(made.queries.tolist(), made.passages.tolist(), made.grades.tolist(), strict=True)
    assert [((query, passage), grade) for query, passage, grade in judged] == sorted(expected.items())
    assert 100 < made.grades.sum() < len(made.grades) - 100
    measures = parse_measures("success@1,qa_recall_at_5,mrr@12")
    values = compute_measures(ranking, made, len(answers), measures)
    first = [
        next((rank for rank, row in enumerate(passages[:12]) if expected.get((query, row))), np.inf)
        for query, passages in enumerate(rows.tolist())
    ]
    assert values[:, 0].mean() == np.mean(np.array(first) < 1)
    assert values[:, 1].mean() == np.mean(np.array(first) < 5)


def test_measures_that_compare_with_all_relevant_passages_are_refused() -> None:
    check_measures(parse_measures("success@20,mrr@10,precision@5,judged@10,dcg@10,rbp@10"))
    with pytest.raises(InputError, match=r"recall@100, ndcg@10 compare with all relevant passages"):
        check_measures(parse_measures("recall@100,success@20,ndcg@10"))
    assert depth_of(parse_measures("success@20,mrr@10")) == 20
    assert depth_of(parse_measures("success@20,mrr")) is None
