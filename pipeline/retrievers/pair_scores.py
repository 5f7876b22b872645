"""The scores of the pairs of a ranking: each is computed once, for all first stages, depths and collections.

A pair is known by the hash of its two texts. The scores of a part of a run's pairs are an artifact, `scores`,
written as soon as they are there, so a killed run loses the parts under way. Its arrays are sorted by hashes.

A text is hashed to two numbers of 64 bits, and a pair to q * odd + p, modulo 2^64, which are as good as
random.
"""

from __future__ import annotations

import hashlib
import logging
from functools import partial

import numpy as np
import pyarrow as pa

from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Facts, Float32, Int32, Int64, UInt64, take_texts
from pipeline.encoders.batching import Usage
from pipeline.engines import engine as jobs
from pipeline.engines.base import Part
from pipeline.retrievers.rows import find_rows, hash_texts, table_of
from pipeline.retrievers.stage import Context
from pipeline.storage.artifacts import Draft, Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)

STAGE = "scores"
SCHEMA = 2
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)  # without a meaning; odd, so invertible


class ScoreStore:
    """The scores that a store has of one scorer, `ScoreSource.recipe`; with `fresh`, none is found."""

    def __init__(self, store: Store, scorer: Facts, fresh: bool = False) -> None:
        self._store, self._scorer, self._fresh = store, scorer, fresh
        self.keys: list[str] = []
        """The keys of the artifacts that a score was found in or added to."""

    def find(self, pairs: UInt64) -> tuple[Float32, Int32]:
        """The score of each pair by its hash, uint64 [pairs, 2], and its tokens.

        Returns:
            float32 [pairs], NaN where there is none; and int32 [pairs, 2], the tokens of the pair and how
            many of them the model does not read, -1 if they are not known.
        """
        scores = np.full(len(pairs), np.nan, np.float32)
        tokens = np.full((len(pairs), 2), -1, np.int32)
        for artifact in [] if self._fresh else self._store.find_alike(self._recipe("")):
            missing = np.flatnonzero(np.isnan(scores))
            if not missing.size:
                break
            if artifact.damaged():
                log.warning("%s is damaged: its pairs are scored again", artifact.folder)
                continue
            stored = artifact.array("scores.npy")
            table = artifact.array("first.npy"), artifact.array("second.npy"), np.arange(len(stored))
            rows = find_rows(table, pairs[missing])
            if (rows >= 0).any():
                scores[missing[rows >= 0]] = stored[rows[rows >= 0]]
                tokens[missing[rows >= 0]] = artifact.array("tokens.npy")[rows[rows >= 0]]
                self.keys.append(artifact.key)
        return scores, tokens

    def add(self, pairs: UInt64, scores: Float32, tokens: Int32) -> None:
        """Keep the scores float32 [pairs] and the tokens of some pairs, each of which is there once."""
        first, second, order = table_of(pairs)
        content = hashlib.sha256(np.stack([first, second], axis=1).astype("<u8").tobytes()).hexdigest()
        recipe = self._recipe(content)

        def build(draft: Draft) -> Facts:
            draft.save_array("first.npy", first)
            draft.save_array("second.npy", second)
            draft.save_array("scores.npy", scores[order.astype(np.int64)])
            draft.save_array("tokens.npy", tokens[order.astype(np.int64)])
            return {"pairs": len(pairs)}

        self._store.make(recipe, build, self._fresh)
        self.keys.append(recipe.key)

    def _recipe(self, pairs: str) -> Recipe:
        return Recipe(STAGE, {"schema": SCHEMA, "scorer": self._scorer, "pairs": pairs})


SHARD_PAIRS = 4096  # pairs scored at once, the most that an interrupted run loses for each worker
HASHED_TEXTS = 4096  # texts read at once to be hashed


def score_pairs(
    collection: Collection, queries: Int64, passages: Int64, store: ScoreStore, context: Context
) -> tuple[Float32, Int32]:
    """The scores of pairs and their tokens, as `ScoreStore.find`; new ones are added to the store by parts.

    Pairs are given by the rows of their query and their passage, int64 [pairs] each. The stage's meter notes
    how many were found and how many scored; pairs of equal texts are scored once.
    """
    query_texts, passage_texts = collection.queries.texts, collection.passages.texts
    hashes = _hashes(query_texts, queries) * _ODD + _hashes(passage_texts, passages)

    def read(rows: Int64) -> list[tuple[str, str]]:
        asked = take_texts(query_texts, queries[rows]).to_pylist()
        return list(zip(asked, take_texts(passage_texts, passages[rows]).to_pylist(), strict=True))

    scores, tokens = store.find(hashes)
    missing = np.flatnonzero(np.isnan(scores))
    _, first, same = np.unique(hashes[missing], axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # as they come in the ranking: parts then hold few queries
    todo = missing[first[order]]
    spans = [(start, min(start + SHARD_PAIRS, len(todo))) for start in range(0, len(todo), SHARD_PAIRS)]
    parts = [Part(*span, partial(read, todo[slice(*span)])) for span in spans]
    usage = Usage()
    new_scores, new_tokens = np.empty(len(todo), np.float32), np.full((len(todo), 2), -1, np.int32)
    if parts:
        context.open_engine().load(len(parts))
    with context.progress("rerank", len(todo), "pairs") as bar, context.meter.working():
        for result in context.counted_parts(jobs.score, parts, bar) if parts else ():
            span = slice(result.part.start, result.part.stop)
            new_scores[span], cost = result.outputs
            _check(new_scores[span])
            if cost.counts is not None and cost.left_out is not None:
                new_tokens[span] = np.stack([cost.counts, cost.left_out], axis=1)
            store.add(hashes[todo[span]], new_scores[span], new_tokens[span])
            usage.add(cost)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    scores[missing], tokens[missing] = (some[place[same.reshape(-1)]] for some in (new_scores, new_tokens))
    context.meter.items, context.meter.worked_on = len(hashes), len(todo)
    context.meter.notes["pairs"] = {"found": len(hashes) - len(todo), "scored": len(todo)}
    if parts:
        context.meter.notes["encoding"] = usage.figures()
    return scores, tokens


def _check(scores: Float32) -> None:
    """Refuse scores that are no numbers, as from weights that are damaged or too large for fp16."""
    wrong = int((~np.isfinite(scores)).sum())
    if wrong:
        raise InputError(
            f"rerank: {wrong:,} of {len(scores):,} scores are NaN or infinite",
            fix="check the model's weights, or set rerank.precision to fp32",
        )


def _hashes(column: pa.ChunkedArray, rows: Int64) -> UInt64:
    """uint64 [rows, 2]: the hash of the text in each row of a column, read a few at a time."""
    different, places = np.unique(rows, return_inverse=True)
    parts = [
        hash_texts(take_texts(column, different[start : start + HASHED_TEXTS]))
        for start in range(0, len(different), HASHED_TEXTS)
    ]
    return np.concatenate([np.empty((0, 2), np.uint64), *parts])[places]
