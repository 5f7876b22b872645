"""Stages that every kind of retriever has in common: the collection first, the scores last."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

from pipeline import data
from pipeline.config import Config, keyed_settings
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float64, Ranking
from pipeline.data import Identity
from pipeline.metrics.names import Measure, parse_measures
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage
from pipeline.storage.artifacts import Artifact, Draft

TAG = "benchmarco"  # the last column of run.trec
COLLECTION, RANKING, SCORES = "data", "search", "evaluate"  # roles that every plan has
SCHEMAS = {SCORES: 1}  # that of the data is in `pipeline.data.identity`
EXACT = "exact"  # the role of the exact search that an approximate index is compared with
RESULTS = (RANKING, SCORES)  # the roles that a result folder is written from
UNLISTED = (EXACT,)  # roles that results do not list: they are part of what they are compared with


def whole_plan(config: Config, identity: Identity, ranking: Plan) -> Plan:
    """All stages of a benchmark: the collection first, a retriever's own, and the scores last."""
    scores = evaluate_stage(config, identity, EXACT in ranking)
    return {COLLECTION: collection_stage(config, identity), **ranking, SCORES: scores}


def collection_stage(config: Config, identity: Identity) -> Stage:
    """Reads, checks and slices the collection."""

    def make(inputs: Inputs, draft: Draft, context: Context) -> Facts:
        facts = data.load(config.data, draft, context.progress)
        data.check(config.data, identity)
        context.meter.count(facts["passages"])
        return facts

    parts = {"passages": identity.passages, "queries": identity.queries, "qrels": identity.qrels}
    return Stage(COLLECTION, 0, (), lambda keys: parts, make, data.open_collection, exact_bytes=True)


def save_ranking(draft: Draft, collection: Collection, ranking: Ranking) -> Facts:
    """Write a ranking as arrays and as a TREC run: what every kind's search leaves."""
    from pipeline.formats.runs import write_run

    draft.save_array("passages.npy", ranking.passages)
    draft.save_array("scores.npy", ranking.scores)
    with draft.file("run.trec") as path, open(path, "wb") as file:
        write_run(file, collection.queries.ids, collection.passages.ids, ranking, TAG)
    return {"queries": len(ranking.passages), "depth": int(ranking.passages.shape[1])}


def open_ranking(artifact: Artifact) -> Ranking:
    """The ranking that `save_ranking` wrote, memory-mapped."""
    return Ranking(artifact.array("passages.npy"), artifact.array("scores.npy"))


def measures_of(config: Config) -> list[Measure]:
    """The measures to compute; a cutoff above `search.top_k` is refused."""
    measures = parse_measures(config.evaluate.measures)
    for measure in measures:
        if measure.cutoff and measure.cutoff > config.search.top_k:
            raise InputError(
                f"evaluate.measures: {measure} looks at {measure.cutoff} ranks, "
                f"search.top_k keeps {config.search.top_k}",
                allowed=f"cutoffs up to {config.search.top_k}",
                fix="raise search.top_k or lower the cutoff",
            )
    return measures


def evaluate_stage(config: Config, identity: Identity, with_exact: bool) -> Stage:
    """Scores the ranking, and with `with_exact` compares it with that of the plan's exact search."""
    measures = measures_of(config)
    settings = keyed_settings(config.evaluate, "evaluate")
    rankings = (RANKING, EXACT) if with_exact else (RANKING,)

    def ingredients(keys: Any) -> dict[str, Any]:
        names = [str(measure) for measure in measures]
        made_of = {role: keys[role] for role in rankings}
        return {**made_of, "qrels": identity.qrels, "measures": names, **settings}

    make = partial(_evaluate, config, measures)
    needs = (COLLECTION, *rankings)
    return Stage(SCORES, SCHEMAS[SCORES], needs, ingredients, make, lambda made: made.facts)


def _evaluate(
    config: Config, measures: list[Measure], inputs: Inputs, draft: Draft, context: Context
) -> Facts:
    from pipeline.metrics import evaluation, scoring, statistics
    from pipeline.search import against_exact

    collection: Collection = inputs[COLLECTION]
    queries = collection.queries

    def score(ranking: Ranking) -> Float64:
        if config.evaluate.ignore_identical_ids:
            own = evaluation.row_numbers(queries.ids, collection.passages.ids)
            ranking = scoring.drop_identical(ranking, own)
        return scoring.compute_measures(ranking, collection.qrels, len(queries), measures)

    values = score(inputs[RANKING])
    low, high = statistics.bootstrap_interval(values)
    table = io.StringIO(newline="")
    evaluation.write_per_query(table, queries.ids.to_pylist(), measures, values)
    with draft.file("per_query.csv") as path:
        path.write_bytes(table.getvalue().encode())
    context.meter.count(len(queries))
    names = [str(measure) for measure in measures]
    means = [float(mean) for mean in values.mean(axis=0)]
    facts: dict[str, Any] = {
        "queries": len(queries),
        "passages": len(collection.passages),
        "metrics": dict(zip(names, means, strict=True)),
        "intervals": {name: [float(a), float(b)] for name, a, b in zip(names, low, high, strict=True)},
    }
    if EXACT in inputs:
        found, exact = inputs[RANKING].passages, inputs[EXACT]
        facts["against_exact"] = against_exact.compare_with_exact(
            found, exact.passages, measures, values, score(exact)
        )
    return facts
