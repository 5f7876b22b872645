"""Does the batch matter? The vectors of texts that are encoded alone, together, and in another order.

Batches decide how texts are padded, and by which sums matrix products are computed. Where a vector depends on
them, so does a score, and two runs of one model may rank differently.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config import Config
from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float32, Float64, Int64, Ranking, Role
from pipeline.core.table import Column, Table
from pipeline.encoders.batching import Usage
from pipeline.metrics.names import parse_measure
from pipeline.metrics.scoring import compute_measures
from pipeline.retrievers.dense import Dense
from pipeline.retrievers.parity import evenly, sampled_passages
from pipeline.run.benchmark import Session
from pipeline.search.scoring import Metric, for_metric
from pipeline.storage import vector_forms

TEXTS = 64  # that are encoded alone and together
SAMPLE_QUERIES = 100  # that are ranked, over the passages of `sampled_passages`


@dataclass(frozen=True)
class BatchCheck:
    """How far the vectors of passages depend on their batch.

    Attributes:
        backend, name: The model.
        texts: How many passages were encoded alone, in company, and in another order.
        largest: The largest difference between two vectors of one text, in any dimension.
        score: The largest difference between two scores of one passage for a query of the sample.
        measures: By measure, by how much its mean over the sample could change if each score moved so far.
        queries, passages: The size of that sample.
    """

    backend: str
    name: str
    texts: int
    largest: float
    score: float
    measures: dict[str, float]
    queries: int
    passages: int

    def table(self) -> Table:
        """The differences, a quantity a row."""
        title = f"{self.name} by {self.backend}: " + (
            "the batch changes vectors" if self.largest else "the batch does not matter"
        )
        rows = [
            ("largest difference of vectors", f"{self.largest:.2g}"),
            ("largest difference of scores", f"{self.score:.2g}"),
            *(
                (f"largest possible change of {name}", f"{value:.4f}" if value else "0")
                for name, value in self.measures.items()
            ),
        ]
        note = (
            f"{self.texts} passages alone, together, and together in another order. Changes of measures: "
            f"{self.queries} queries over {self.passages:,} passages, if each score moved so far in the "
            "worst direction."
        )
        return Table(title, [Column("what"), Column("value", "right", "never")], rows, [note])


def check_batches(config: Config, progress: Progress) -> BatchCheck:
    """Encode passages of a collection alone, in company and in another order, and compare.

    Nothing is stored but what a backend prepares of a model.

    Raises:
        InputError: The config is of a suite, or its model makes no dense vectors, or none are encoded.
    """
    with Session() as session:
        config = config.model_copy(update={"rerank": None})
        benchmark = None if config.members else session.benchmark(config, silent)
        retriever = benchmark.retriever if benchmark else None
        if benchmark is None or not isinstance(retriever, Dense) or retriever.source.stored:
            raise InputError(
                f"{config.name}: nothing that one model encodes as dense vectors",
                allowed="one collection, and a model of a backend such as native, flag or http",
                fix="give a config of one collection and one such model",
            )
        benchmark.check()
        collection, source = benchmark.collection, retriever.source
        form, metric = source.form(retriever.settings), benchmark.resolved_config.index.metric
        passages = sampled_passages(collection)
        judged = np.unique(collection.qrels.queries)
        queries = judged[evenly(len(judged), SAMPLE_QUERIES)]
        chosen = evenly(len(passages), TEXTS)
        texts = collection.passages.texts.take(pa.array(passages)).to_pylist()
        asked = collection.queries.texts.take(pa.array(queries)).to_pylist()
        with contextlib.ExitStack() as stack:
            encoder: Any = source.connect() if source.served else source.open(benchmark.store)
            if source.served:
                stack.callback(encoder.close)

            def encode(given: list[str], role: Role) -> Float32:
                whole = encoder.encode(given, role, Usage(), bar)
                formed = np.empty((len(whole), form.dimensions or whole.shape[1]), np.float32)
                vector_forms.apply_form(whole, form, formed, 0)
                return for_metric(formed, metric)

            few = [texts[row] for row in chosen]
            total = len(texts) + len(asked) + 3 * len(few)
            bar = stack.enter_context(progress("encode alone and together", total, "texts"))
            alone = np.concatenate([encode([text], "passages") for text in few])
            others = [encode(few, "passages"), encode(few[::-1], "passages")[::-1]]
            of_passages, of_queries = encode(texts, "passages"), encode(asked, "queries")
        others.append(of_passages[chosen])
        scores = _scores(of_queries, alone, metric)
        score = max(float(np.abs(_scores(of_queries, each, metric) - scores).max()) for each in others)
        return BatchCheck(
            backend=retriever.settings.backend,
            name=source.model.name if source.model else config.label,
            texts=len(few),
            largest=max(float(np.abs(each - alone).max()) for each in others),
            score=score,
            measures=_changes(
                config, collection, queries, passages, _scores(of_queries, of_passages, metric), score
            ),
            queries=len(queries),
            passages=len(passages),
        )


def _scores(queries: Float32, passages: Float32, metric: Metric) -> Float64:
    """Float64 [queries, passages]; higher is nearer. Each is summed by itself, whatever the others are."""
    left, right = queries.astype(np.float64), passages.astype(np.float64)
    if metric == "l2":
        return np.stack([-np.square(right - query).sum(axis=1) for query in left])
    return np.stack([(right * query).sum(axis=1) for query in left])


def _changes(
    config: Config, collection: Collection, queries: Int64, passages: Int64, scores: Float64, by: float
) -> dict[str, float]:
    """By how much the mean of each measure could change if each score moved by `by`.

    Bounds: all relevant passages down and all others up, and the other way round.
    """
    measures = [parse_measure(each) for each in config.evaluate.measures]
    qrels = collection.qrels
    judged = qrels.grades > 0
    count = len(collection.passages) + len(collection.missing_ids)
    relevant = qrels.queries[judged] * count + qrels.passages[judged]
    signs = np.where(np.isin(queries[:, None] * count + passages, relevant), 1.0, -1.0)

    def means(moved: Float64) -> Float64:
        order = np.argsort(-moved, axis=1, kind="stable")[:, : config.search.top_k]
        found = np.full((len(collection.queries), order.shape[1]), -1, np.int64)
        values = np.full(found.shape, -np.inf)
        found[queries], values[queries] = passages[order], np.take_along_axis(moved, order, axis=1)
        scored: Float64 = compute_measures(Ranking(found, values), qrels, len(collection.queries), measures)
        mean: Float64 = scored[queries].mean(axis=0)
        return mean

    now = means(scores)
    change = np.maximum(np.abs(means(scores + by * signs) - now), np.abs(means(scores - by * signs) - now))
    return dict(zip(map(str, measures), change.tolist(), strict=True))
