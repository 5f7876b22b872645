"""Does the server run the model that was trained? A sample of a collection, encoded there and here.

The passages of the sample are ranked for its queries by the vectors of each, so that a difference of vectors
is seen in what it does to rankings and measures.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Embeddings, Float32, Float64, Int64, Ranking, Texts, VectorForm
from pipeline.encoders import Network, Usage
from pipeline.models.model import Role
from pipeline.retrievers.ranking import Judge
from pipeline.retrievers.stage import Context, Facts, Inputs
from pipeline.search.scoring import Metric
from pipeline.storage import vector_forms, vector_shards
from pipeline.storage.artifacts import Artifact, Draft

log = logging.getLogger(__name__)

SAMPLE = {"passages": 1000, "queries": 200}  # texts that are encoded here, at most
DEPTH = 100  # passages of the sample that are ranked for each query
ALIKE = 0.99  # the lowest cosine of vectors that count as those of one model; bf16 keeps 0.999
SCORES = ("served", "trained")


@dataclass(frozen=True)
class Sides:
    """The rankings of a sample by the vectors of the server and of the model here.

    Attributes:
        facts: What is said of the vectors.
        queries: int64 [sampled queries], ascending rows of the collection's queries.
        served: Of all queries; those that are not in the sample have no hits.
        trained: The same.
    """

    facts: Facts
    queries: Int64
    served: Ranking
    trained: Ranking


def make(
    network: Network, form: VectorForm, metric: Metric, inputs: Inputs, draft: Draft, context: Context
) -> Facts:
    """Encode the sample by the model that runs here, compare vectors in a form, and rank by those of both."""
    collection: Collection = inputs["data"]
    queries = spread(len(collection.queries), SAMPLE["queries"])
    rows = {"passages": sampled_passages(collection), "queries": queries}
    served = {
        "passages": vector_shards.gather_rows(inputs["passages"], rows["passages"]),
        "queries": np.asarray(inputs["queries"][rows["queries"]], np.float32),
    }
    trained = _encode(network, form, collection, rows, context)
    cosines = np.concatenate([_cosines(served[role], trained[role]) for role in SAMPLE])
    draft.save_array("sample.npy", rows["passages"])
    draft.save_array("queries.npy", rows["queries"])
    ids = collection.passages.ids.take(pa.array(rows["passages"]))
    for name, side in zip(SCORES, (served, trained), strict=True):
        ranking = _rank(side, ids, metric, context)
        draft.save_array(f"{name}.npy", rows["passages"][ranking.passages])
        draft.save_array(f"{name}-scores.npy", ranking.scores)
    lowest = float(cosines.min())
    if lowest < ALIKE:
        log.warning(
            "the server's vectors are not those of %s: the lowest cosine of %d texts is %.4f",
            network.model.name, len(cosines), lowest,
        )  # fmt: skip
    return {
        "backend": network.settings.backend,
        "name": network.model.name,
        "passages": len(rows["passages"]),
        "queries": len(rows["queries"]),
        "all_queries": len(collection.queries),
        "lowest_cosine": lowest,
        "mean_cosine": float(cosines.mean()),
    }


def open_sides(artifact: Artifact) -> Sides:
    """What `make` wrote."""
    queries = np.array(artifact.array("queries.npy"))
    count = artifact.facts["all_queries"]
    rankings = []
    for name in SCORES:
        found, scores = artifact.array(f"{name}.npy"), artifact.array(f"{name}-scores.npy")
        passages = np.full((count, found.shape[1]), -1, np.int64)
        values = np.full(passages.shape, -np.inf, scores.dtype)
        passages[queries], values[queries] = found, scores
        rankings.append(Ranking(passages, values))
    return Sides(artifact.facts, queries, *rankings)


def assess(judge: Judge, results: Sequence[object]) -> Facts:
    """The section `parity` of `metrics.json`: cosines, the share of equal hits, changes of measures."""
    from pipeline.search.exact import compare_with_exact

    (sides,) = results
    assert isinstance(sides, Sides)
    judged = np.isin(judge.queries, sides.queries)
    values: list[Float64] = [judge.score(ranking)[judged] for ranking in (sides.served, sides.trained)]
    compared = compare_with_exact(
        sides.served.passages[sides.queries], sides.trained.passages[sides.queries], judge.measures, *values
    )
    return {"parity": {**sides.facts, **compared}}


def sampled_passages(collection: Collection) -> Int64:
    """Ascending rows: passages that are relevant to a query, up to half of the sample, and others spread."""
    relevant = collection.qrels.passages[collection.qrels.grades > 0]
    relevant = np.unique(relevant[relevant < len(collection.passages)])[: SAMPLE["passages"] // 2]
    others = np.setdiff1d(np.arange(len(collection.passages)), relevant)
    left = min(SAMPLE["passages"] - len(relevant), len(others))
    chosen = others[np.linspace(0, len(others) - 1, left).astype(np.int64)]
    return np.union1d(relevant, chosen).astype(np.int64)


def spread(count: int, sample: int) -> Int64:
    """Rows of at most `sample` of `count` things, spread evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, sample)).astype(np.int64))


def _encode(
    network: Network, form: VectorForm, collection: Collection, rows: dict[str, Int64], context: Context
) -> dict[str, Float32]:
    """By role the vectors of the sample, as the model that runs here gives them, in a form."""
    encoder = network.ready(context.store).load()
    found: dict[str, Float32] = {}
    roles: dict[Role, Texts] = {"passages": collection.passages, "queries": collection.queries}
    for role, texts in roles.items():
        chosen = texts.texts.take(pa.array(rows[role])).to_pylist()
        with context.progress(f"encode {role} here", len(chosen), "texts") as bar:
            whole = encoder.encode(chosen, role, Usage(), bar)
        found[role] = np.empty((len(whole), form.dimensions or whole.shape[1]), np.float32)
        vector_forms.apply_form(whole, form, found[role], 0)
    return found


def _cosines(served: Float32, trained: Float32) -> Float64:
    """Float64 [texts]: the cosine of the two vectors of each text."""
    if served.shape[1] != trained.shape[1]:
        raise InputError(
            f"model.same_as: the server gives {served.shape[1]:,} dimensions, and the model "
            f"{trained.shape[1]:,}",
            fix="name the model that is served, or set model.truncate_dim",
        )
    return vector_forms.cosines(served, trained)


def _rank(side: dict[str, Float32], ids: pa.ChunkedArray, metric: Metric, context: Context) -> Ranking:
    """The best passages of the sample for each of its queries, by their place in it."""
    from pipeline.search.exact import exact_search

    with context.progress("rank the sample", len(side["queries"]), "queries") as bar:
        return exact_search(Embeddings((side["passages"],)), side["queries"], DEPTH, ids, metric, bar)
