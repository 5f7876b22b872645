"""Rerankers behind an address, against a server on this machine."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workplaces
from workplaces import BAR

from pipeline import InputError
from pipeline.config import RERANKERS
from pipeline.encoders import Usage, resolve
from pipeline.storage import Store

MODEL = "all-minilm-l6-v2"
Score = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def score(embedding_server: Any, tmp_path: Path) -> Iterator[Score]:
    """Scores pairs by the server, with some settings; `score.usage` is what it took."""
    scorers = []

    def start(texts: list[tuple[str, str]], **settings: Any) -> Any:
        given = {"backend": "http", "url": embedding_server.url, "name": MODEL, **settings}
        scorers.append(resolve(RERANKERS.make(**given)).open(Store(tmp_path)))
        start.usage = Usage()
        return scorers[-1].score(texts, start.usage, BAR)

    yield start
    for scorer in scorers:
        scorer.close()


@pytest.fixture
def scored(embedding_server: Any) -> tuple[list[tuple[str, str]], Any]:
    """Pairs of three queries and seven passages each, and their scores: the cosines of their vectors."""
    at_random = np.random.default_rng(2)
    vectors: dict[str, Any] = {}
    embedding_server.embed = lambda texts: np.stack(
        [vectors.setdefault(text, at_random.standard_normal(8)) for text in texts]
    )
    pairs = [(f"query {q}", f"passage {p}") for q in range(3) for p in range(7)]
    sides = [embedding_server.embed([pair[side] for pair in pairs]) for side in (0, 1)]
    a, b = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in sides)
    return pairs, (a * b).sum(axis=1)


@pytest.mark.parametrize("form", ["cohere", "tei"])
def test_scores_come_in_the_order_of_the_pairs_in_both_forms(
    form: str, score: Score, embedding_server: Any, scored: Any
) -> None:
    pairs, expected = scored
    embedding_server.faults = [lambda handler: bool(handler.send(503, "busy")) or True]
    np.testing.assert_allclose(score(pairs, form=form, batch_size=4), expected, atol=1e-6)
    assert embedding_server.answered == {"\n".join(pair): 1 for pair in pairs}
    assert (score.usage.server.requests, score.usage.server.retries) == (7, 1)  # two for each query
    assert (score.usage.tokens > 0) == (form == "cohere")  # TEI counts none
    embedding_server.clear()
    embedding_server.most_texts = 2  # larger requests are halved
    np.testing.assert_allclose(score(pairs, form=form, concurrency=1), expected, atol=1e-6)
    assert embedding_server.answered == {"\n".join(pair): 1 for pair in pairs}


def both(score: Any) -> dict[str, Any]:
    """An answer of one score for each of two passages."""
    return {"results": [{"index": row, "relevance_score": score} for row in (0, 1)]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"results": [{"index": 0, "relevance_score": 1.0}]}, "1 score for 2 passages"),
        (both(float("nan")), "NaN or infinite"),
        (both("1"), "a score that is no number"),
        (both(10**400), "NaN or infinite"),
        ({"data": []}, "JSON without a list 'results'"),
        ("<html>", "no JSON of scores"),
    ],
)
def test_answers_without_a_score_for_each_passage_are_refused(
    answer: Any, said: str, score: Score, embedding_server: Any, scored: Any
) -> None:
    embedding_server.faults = [lambda handler: bool(handler.send(200, answer)) or True]
    with pytest.raises(InputError) as refusal:
        score(scored[0][:2])
    assert said in str(refusal.value)


def test_scores_of_several_passages_need_numbers(score: Score, embedding_server: Any) -> None:
    def answer(handler: Any) -> bool:
        passages = sorted(handler.body["documents"], reverse=True)
        rows = [{"document": text, "relevance_score": float(text)} for text in passages]
        handler.send(200, {"results": rows})
        return True

    embedding_server.faults = [answer] * 2
    with pytest.raises(InputError, match="scores that are not numbered from 0 to 1"):
        score([("q", "3"), ("q", "4")])
    assert score([("q", "3")]).tolist() == [3]


CONFIG = """
name: t
data: {source: sample, queries: 30, corpus: 200}
model: {backend: bm25}
rerank: {backend: http, name: all-minilm-l6-v2, depth: 5}
search: {top_k: 100}
evaluate: {measures: [ndcg@10]}
"""


def test_a_ranking_is_reranked_and_every_run_asks_for_a_few_scores_again(
    tmp_path: Path, embedding_server: Any
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG, encoding="utf-8")

    def run(*settings: str) -> Any:
        embedding_server.clear()
        return workplaces.run(tmp_path, f"rerank.url={embedding_server.url}", *settings)

    result = run()
    pairs = result.document["reranking"]["pairs"]
    # probes: at the start, and after the shard; and a request of 32, three of them alone
    assert sum(embedding_server.answered.values()) == pairs + 8 * 2 + 32 + 3 > 100
    assert result.record.stage("rerank").encoding.requests == 30
    run()
    assert sum(embedding_server.answered.values()) == 8
    run("rerank.depth=4")  # all scores are stored
    assert sum(embedding_server.answered.values()) == 8
    honest = embedding_server.embed
    embedding_server.embed = lambda texts: honest(texts) + 0.1
    for setting in ("rerank.depth=5", "rerank.depth=3"):
        with pytest.raises(InputError, match="no longer gives what it gave: scores differ by up to 0"):
            run(setting)
    run("rerank.revision=b")
    assert sum(embedding_server.answered.values()) == pairs + 8 * 2 + 32 + 3
    embedding_server.embed = honest
