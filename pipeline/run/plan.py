"""The plan of a benchmark: the collection first, then the stages of its retriever, and the scores last."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import BACKENDS, Config, keyed_settings
from pipeline.config.model import Bm25Settings, RowSettings
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Facts, Ranking, from_numpy, take_texts
from pipeline.data import loading
from pipeline.data.collection_files import contents_of, open_collection
from pipeline.data.loading import Identity
from pipeline.data.sources import read_clusters
from pipeline.encoders.opener import TextOpener
from pipeline.metrics.definitions import Measure, parse_measure
from pipeline.models.model import CalibrationCorpus
from pipeline.retrievers.retriever import COLLECTION, Evaluator, Retriever
from pipeline.retrievers.stage import Context, Inputs, Stage
from pipeline.storage.artifacts import Artifact, Draft
from pipeline.storage.hashing import file_changed, hash_json
from pipeline.storage.whole_files import PER_QUERY

SCORES = "evaluate"  # the role of the scores, in every plan
REPORTED = ("queries", "passages", "missing", "metrics", "intervals", "unjudged")
"""Parts of the scores that are in every result."""
CONTENTS = "contents"  # what the scores say of the data, for the manifest
SCHEMAS = {SCORES: 10}  # that of the data is in `pipeline.data.loading`


def collection_stage(config: Config, identity: Identity) -> Stage:
    """Reads, checks and slices the collection."""

    def make(inputs: Inputs, draft: Draft, context: Context) -> Facts:
        facts: Facts = loading.load(identity.source, config.data, draft, context.progress)
        if loading.identify(config.data, identity.source) != identity:
            raise file_changed(f"the collection of {getattr(config.data, 'path', config.data.source)}")
        context.meter.items = facts["passages"]
        return facts

    parts = {"passages": identity.passages, "queries": identity.queries, "qrels": identity.qrels}
    return Stage(COLLECTION, 0, (), {}, parts, make, open_collection, exact_bytes=True)


def make_retriever(
    config: Config, resolve: Callable[[Any], Any], identity: Identity, corpus: Path
) -> Retriever:
    """The retriever of a config, made of those that it joins or reranks; no other kind is imported.

    `corpus` is the file of the passages, which exists once the collection is read: a model in int8 is
    calibrated on it. `resolve` gives the source of a section; other arguments are as of `Retriever`.
    """
    model = config.model
    if config.rerank:
        from pipeline.retrievers.reranked import RerankingRetriever

        first = make_retriever(config.model_copy(update={"rerank": None}), resolve, identity, corpus)
        return RerankingRetriever(config, config.rerank, identity, resolve(config.rerank), [first])
    if config.fuse:
        from pipeline.retrievers.fused import FusionRetriever

        parts = [make_retriever(part, resolve, identity, corpus) for part in config.parts]
        return FusionRetriever(config, config.fuse, identity, parts=parts)
    assert model is not None
    if type(model) is Bm25Settings:  # another package's section may extend it
        from pipeline.retrievers.bm25 import Bm25

        return Bm25(config, model, identity)
    if not isinstance(model, RowSettings):
        added: type[Retriever] = BACKENDS.opener(model.backend)
        return added(config, model, identity)
    source = resolve(model)
    if isinstance(source, TextOpener) and source.model.precision == "int8":
        source = source.calibrated_on(CalibrationCorpus(identity.passages, corpus))
    if model.output == "sparse":
        from pipeline.retrievers.sparse import Sparse

        return Sparse(config, model, identity, source)
    if model.output == "multivector":
        from pipeline.retrievers.multivector import MultiVector

        return MultiVector(config, model, identity, source)
    from pipeline.retrievers.dense import Dense

    return Dense(config, model, identity, source)


def evaluate_stage(config: Config, retriever: Retriever) -> Stage:
    """Scores the ranking, and what else the retriever assesses.

    Measures of `expected` are last. One with a cutoff above `search.top_k` cannot be compared, and is left
    out; such a measure of `evaluate` is refused.
    """
    top_k = config.search.top_k
    published = [parse_measure(score.measure) for score in config.expected]
    reached = [measure for measure in published if (measure.cutoff or 1) <= top_k]
    measures = list(dict.fromkeys([*map(parse_measure, config.evaluate.measures), *reached]))
    if deep := [measure for measure in measures if (measure.cutoff or 1) > top_k]:
        raise InputError(
            f"evaluate.measures: {deep[0]} looks at {deep[0].cutoff} ranks, search.top_k keeps {top_k}",
            allowed=f"cutoffs up to {top_k}",
            fix="raise search.top_k or lower the cutoff",
        )
    settings = {
        "qrels": retriever.identity.qrels,
        "measures": [str(measure) for measure in measures],
        **keyed_settings(config.evaluate, SCORES),
        **keyed_settings(config.data, SCORES),
    }
    field = config.evaluate.cluster
    clusters = read_clusters(retriever.identity.source, config.data, field) if field else {}
    if clusters:
        settings["clusters"] = hash_json(clusters)
    if added := {each.name: each.definition.added for each in measures if each.definition.added}:
        settings["added_measures"] = added
    made_of = {role: role for role in (retriever.ranking, *retriever.assessed)}
    make = partial(_evaluate, config, measures, clusters, retriever)
    needs = (COLLECTION, *made_of)
    return Stage(SCORES, SCHEMAS[SCORES], needs, made_of, settings, make, _open_scores, grows_with="queries")


def _open_scores(artifact: Artifact) -> Facts:
    """What a result says of a ranking; a KeyError if a part is not there."""
    return artifact.facts | {part: artifact.facts[part] for part in (*REPORTED, CONTENTS)}


def _evaluate(
    config: Config,
    measures: list[Measure],
    clusters: Mapping[str, str],
    retriever: Retriever,
    inputs: Inputs,
    draft: Draft,
    context: Context,
) -> Facts:
    from pipeline.metrics import presentation, scoring, statistics

    collection: Collection = inputs[COLLECTION]
    ranking, qrels, queries = inputs[retriever.ranking], collection.qrels, collection.queries
    measures = measures if len(qrels.grades) else []  # nothing can be measured
    judged = np.unique(qrels.queries)  # not all, if judgments of missing passages are dropped
    query_ids: list[str] = queries.ids.take(from_numpy(judged)).to_pylist()
    values, shares = scoring.compute_with_shares(ranking, qrels, measures)
    values = values[judged]
    with draft.file(PER_QUERY) as path, open(path, "w", encoding="utf-8", newline="") as file:
        presentation.write_per_query(file, query_ids, measures, values)
    context.meter.items = len(judged)
    strata: statistics.Strata = [values]
    draws: Sequence[Hashable] = query_ids
    cluster_of = [clusters.get(query) for query in query_ids] if clusters else []
    if cluster_of:
        draws = statistics.draws_of(query_ids, cluster_of)
        strata, _ = statistics.pool_draws(strata, statistics.ONE, [draws], of_means=True)
    highest = [measure.definition.highest for measure in measures]
    estimated = statistics.estimate(strata, low=0, high=highest) if measures else None
    evaluator = Evaluator(collection, measures, judged, draws)
    means = evaluator.means(values)
    facts: Facts = {
        "queries": len(judged),
        "passages": len(collection.passages),
        "missing": collection.facts["missing"],
        "metrics": means,
        "intervals": dict(zip(means, estimated.intervals, strict=True)) if estimated else {},
        "fragile": dict(zip(means, estimated.fragile.tolist(), strict=True)) if estimated else {},
        "unjudged": {name: {"judged": float(share[judged].mean())} for name, share in shares.items()},
        CONTENTS: contents_of(collection, judged),
    }
    return facts | _caveats(config, evaluator, ranking, cluster_of) | retriever.assess(evaluator, inputs)


def _caveats(config: Config, evaluator: Evaluator, ranking: Ranking, clusters: Sequence[str | None]) -> Facts:
    """What to know before trusting the measures of a ranking, by field of `Caveats`."""
    from pipeline.metrics import presentation, scoring

    collection, measures = evaluator.collection, evaluator.measures
    known: Mapping[str, Any] = collection.facts
    n_queries, n_passages = len(collection.queries), len(collection.passages)
    unscored = n_queries - len(evaluator.queries) if config.data.unjudged_queries == "keep" else 0
    as_passages = known.get("queries_as_passages", 0)
    under_own_ids = _under_own_ids(collection) if as_passages else 0
    ignored = scoring.ignored_hits(collection, config.data.ignored)
    searchable = n_passages - np.bincount(ignored.queries, minlength=n_queries)
    models = [each.model for each in (config.fuse.of if config.fuse else (config,))]
    by_words = all(
        model and (model.backend == "bm25" or getattr(model, "output", "") == "sparse") for model in models
    )
    tied = scoring.tied_at_cutoffs(ranking, measures)[evaluator.queries]
    caveats = presentation.Caveats(
        clusters=tuple(clusters),
        unjudged_queries=known["dropped"]["queries_without_judgments"] + unscored,
        unjudged_copies=known.get("unjudged_copies", 0),
        queries_as_passages=as_passages - under_own_ids,
        queries_under_own_ids=0 if config.data.ignored == "identical_ids" else under_own_ids,
        ignored_relevant=scoring.count_relevant(ignored, collection.qrels) if len(ignored.queries) else 0,
        like_random=scoring.random_hits(ranking, collection.qrels, n_passages),
        collection_note=known.get("note", ""),
        # searches by words find all passages that share a word, however few these are
        short_rankings=None if by_words else scoring.short_rankings(ranking.lengths(), measures, searchable),
        ties=presentation.Ties(queries=int(tied.sum()), share=float(tied.mean())) if tied.any() else None,
    )
    return caveats.model_dump(mode="json", exclude_defaults=True)


def _under_own_ids(collection: Collection) -> int:
    """How many queries stand in the corpus as the passage with their own id."""
    import pyarrow.compute as pc

    own = pc.index_in(collection.queries.ids, value_set=collection.passages.ids)  # null: not there
    asked = collection.queries.texts.filter(pc.is_valid(own))
    same = pc.equal(asked, take_texts(collection.passages.texts, own.drop_null().to_numpy()))
    return int(pc.sum(same).as_py() or 0)
