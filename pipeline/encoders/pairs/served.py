"""The `http` reranker: scores of a model that a server runs, by `/rerank`.

Cohere, Jina, vLLM and Infinity take one form of it; TEI takes another. A request holds one query and some of
its passages.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from pipeline.config.rerank import HttpRerankSettings
from pipeline.core.display import Bar
from pipeline.core.records import Float32, JsonObject
from pipeline.encoders.base import ScoreSource
from pipeline.encoders.batching import Usage
from pipeline.encoders.http.backend import PROBES, Server
from pipeline.encoders.http.client import Client
from pipeline.encoders.http.requests import Asking, scores_of

SCHEMA = 1  # of what is asked for a pair
SAME = 0.02  # the largest difference of a score, relative or absolute, that other batches may make


@dataclass(frozen=True)
class ServedReranker(Server, ScoreSource):
    """A model that gives scores of pairs."""

    section = "rerank"
    same = f"differences of {SAME}, of a score or of 1"
    config: HttpRerankSettings

    @override
    def ingredients(self) -> JsonObject:
        return {"model": self.probed()}

    @override
    def connect(self) -> ServedScorer:
        return ServedScorer(self.config)

    @override
    def probed(self) -> JsonObject:
        return {"served": SCHEMA, **self.described(), "form": self.config.form}

    @override
    def answers(self, bar: Bar) -> Float32:
        with contextlib.closing(self.connect()) as scorer:
            return scorer.score(PROBES, Usage(), bar)

    @override
    def difference(self, now: Float32, first: Float32) -> str | None:
        if np.allclose(now, first, rtol=SAME, atol=SAME):
            return None
        return f"scores differ by up to {np.abs(now - first).max():.4g}"


class ServedScorer:
    """A connection to a server, which scores pairs as `pipeline.encoders.pairs.Scorer` does.

    Several threads may use it at once.
    """

    def __init__(self, config: HttpRerankSettings) -> None:
        self.config = config
        self.client = Client(config, "rerank")

    def close(self) -> None:
        """Cancel what is under way."""
        self.client.close()

    def score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        """The score of each pair, whose texts are cut to `max_characters`."""
        most = self.config.max_characters
        asking = _AskForScores(self, [(query[:most], passage[:most]) for query, passage in pairs], usage, bar)
        self.client.run(asking.all())
        return asking.scores


class _AskForScores(Asking):
    """The requests for the scores of some pairs."""

    path = "/rerank"

    def __init__(
        self, scorer: ServedScorer, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar
    ) -> None:
        sizes = [len(query.encode()) + len(passage.encode()) for query, passage in pairs]
        super().__init__(scorer.client, sizes, usage, bar)
        self.config, self.pairs = scorer.config, pairs
        self.scores: Float32 = np.empty(len(pairs), np.float32)

    @override
    def groups(self, rows: Iterable[int]) -> Iterator[list[int]]:
        """Pairs of one query that follow each other."""
        for _, group in itertools.groupby(rows, key=lambda row: self.pairs[row][0]):
            yield list(group)

    @override
    def body(self, rows: Sequence[int]) -> JsonObject:
        query, passages = self.pairs[rows[0]][0], [self.pairs[row][1] for row in rows]
        if self.config.form == "tei":
            return {"query": query, "texts": passages, "raw_scores": True, "return_text": False}
        return {"model": self.config.name, "query": query, "documents": passages, "top_n": len(passages)}

    @override
    def keep(self, rows: Sequence[int], answer: object) -> None:
        self.scores[rows] = scores_of(answer, len(rows), self.client.bad_answer)
