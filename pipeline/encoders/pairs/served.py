"""The `http` reranker: scores of a model that a server runs, by `/rerank`.

Cohere, Jina, vLLM and Infinity take one form of it; TEI takes another. A request holds one query and some of
its passages.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from pipeline.config.rerank import HttpRerankSettings
from pipeline.core.display import Bar, silent
from pipeline.core.records import Float32
from pipeline.encoders.batching import Usage
from pipeline.encoders.http.backend import PROBES, confirm_answers
from pipeline.encoders.http.requests import Asking, Line, key_of, scores_of
from pipeline.storage.store import Store

SCHEMA = 1  # of what is asked for a pair
SAME = 0.02  # the largest difference of a score, relative or absolute, that other batches may make


@dataclass(frozen=True)
class ServedReranker:
    """A reranker behind an address; nothing of it is known but its settings."""

    device: ClassVar[str] = "cpu"  # of this machine: it computes nothing
    config: HttpRerankSettings

    def recipe(self) -> dict[str, Any]:
        """The model's part of the key of its scores."""
        config = self.config
        return {
            "served": SCHEMA,
            "url": config.url,
            "name": config.name,
            "revision": config.revision,
            "form": config.form,
            "max_characters": config.max_characters,
        }

    def check(self) -> None:
        """Refuse a missing package or key; asks the server nothing."""
        key_of(self.config, self.config.url, "rerank")

    def load(self) -> ServedScorer:
        """The connection to the server."""
        return ServedScorer(self.config)

    def confirm(self, store: Store, fresh: bool) -> None:
        """Refuse stored scores if the server no longer gives them; see `confirm_answers`."""

        def scores() -> Float32:
            with contextlib.closing(self.load()) as scorer, silent("", None, "") as bar:
                return scorer.score(PROBES, Usage(), bar)

        allowed = f"differences of {SAME}, of a score or of 1"
        confirm_answers(self.config, "rerank", self.recipe(), store, fresh, scores, _difference, allowed)


def _difference(now: Float32, first: Float32) -> str | None:
    """How two sets of scores differ, in words; None if they are the same."""
    if np.allclose(now, first, rtol=SAME, atol=SAME):
        return None
    return f"scores differ by up to {np.abs(now - first).max():.4g}"


class ServedScorer:
    """See `pipeline.encoders.pairs.Scorer`; several threads may use it at once."""

    def __init__(self, config: HttpRerankSettings) -> None:
        self.config = config
        from pipeline.encoders.http.client import Client

        client = Client(config, config.url, config.name, "rerank")
        self.line = Line(client, config, config.batch_size, "rerank")

    def close(self) -> None:
        """Cancel what is under way."""
        self.line.client.close()

    def score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        """See `pipeline.encoders.pairs.Scorer.score`."""
        most = self.config.max_characters
        asking = _AskForScores(self, [(query[:most], passage[:most]) for query, passage in pairs], usage, bar)
        self.line.client.run(asking.all())
        return asking.scores


class _AskForScores(Asking):
    """The requests for the scores of some pairs."""

    path = "/rerank"

    def __init__(
        self, scorer: ServedScorer, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar
    ) -> None:
        sizes = [len(query.encode()) + len(passage.encode()) for query, passage in pairs]
        super().__init__(scorer.line, sizes, usage, bar)
        self.config, self.pairs = scorer.config, pairs
        self.scores: Float32 = np.empty(len(pairs), np.float32)

    def groups(self, rows: Iterable[int]) -> Iterator[list[int]]:
        """See `Asking.groups`: pairs of one query that follow each other."""
        for _, group in itertools.groupby(rows, key=lambda row: self.pairs[row][0]):
            yield list(group)

    @override
    def body(self, rows: Sequence[int]) -> dict[str, Any]:
        query, passages = self.pairs[rows[0]][0], [self.pairs[row][1] for row in rows]
        if self.config.form == "tei":
            return {"query": query, "texts": passages, "raw_scores": True, "return_text": False}
        return {"model": self.config.name, "query": query, "documents": passages, "top_n": len(passages)}

    @override
    def keep(self, rows: Sequence[int], answer: Any) -> None:
        self.scores[rows] = scores_of(answer, len(rows), self.line.client.bad_answer)
