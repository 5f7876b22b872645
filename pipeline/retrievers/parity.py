"""Does the server run the model that was trained? A sample of a collection, encoded there and here."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float32, Int64, Role, Texts, VectorForm
from pipeline.encoders.batching import Usage
from pipeline.encoders.opener import TextOpener
from pipeline.retrievers.retriever import Evaluator
from pipeline.retrievers.stage import Context, Facts, Inputs
from pipeline.storage import vector_forms, vector_shards
from pipeline.storage.artifacts import Draft

log = logging.getLogger(__name__)

SAMPLE = {"passages": 1000, "queries": 200}  # texts that are encoded here, at most
ALIKE = 0.99  # the lowest cosine of vectors that count as those of one model; bf16 keeps 0.999


def make(opener: TextOpener, form: VectorForm, inputs: Inputs, draft: Draft, context: Context) -> Facts:
    """Encode the sample by the model that runs here, and compare its vectors in a form with the server's."""
    collection: Collection = inputs["data"]
    rows: dict[Role, Int64] = {
        "passages": sampled_passages(collection),
        "queries": evenly(len(collection.queries), SAMPLE["queries"]),
    }
    served: dict[Role, Float32] = {
        "passages": vector_shards.gather_rows(inputs["passages"], rows["passages"]),
        "queries": np.asarray(inputs["queries"][rows["queries"]], np.float32),
    }
    all_texts: dict[Role, Texts] = {"passages": collection.passages, "queries": collection.queries}
    encoder = opener.open(context.store)
    cosines_of = []
    for role, texts in all_texts.items():
        chosen = texts.texts.take(pa.array(rows[role])).to_pylist()
        with context.progress(f"encode {role} here", len(chosen), "texts") as bar:
            whole = encoder.encode(chosen, role, Usage(), bar)
        trained = np.empty((len(whole), form.dimensions or whole.shape[1]), np.float32)
        vector_forms.apply_form(whole, form, trained, 0)
        if served[role].shape != trained.shape:
            raise InputError(
                f"model.same_as: the server gives {served[role].shape[1]:,} dimensions, and the model "
                f"{trained.shape[1]:,}",
                fix="name the model that is served, or set model.truncate_dim",
            )
        cosines_of.append(vector_forms.cosines(served[role], trained))
    cosines = np.concatenate(cosines_of)
    draft.save_array("cosines.npy", cosines)
    lowest = float(cosines.min())
    if lowest < ALIKE:
        log.warning(
            "the server's vectors are not those of %s: the lowest cosine of %d texts is %.4f",
            opener.model.name, len(cosines), lowest,
        )  # fmt: skip
    return {
        "backend": opener.settings.backend,
        "name": opener.model.name,
        **{role: len(which) for role, which in rows.items()},
        "lowest_cosine": lowest,
        "mean_cosine": float(cosines.mean()),
    }


def assess(evaluator: Evaluator, results: Sequence[Facts]) -> Facts:
    """The section `parity` of `metrics.json`."""
    return {"parity": results[0]}


def sampled_passages(collection: Collection) -> Int64:
    """Ascending rows: passages that are relevant to a query, up to half of the sample, and others evenly."""
    relevant = collection.qrels.passages[collection.qrels.grades > 0]
    relevant = np.unique(relevant[relevant < len(collection.passages)])[: SAMPLE["passages"] // 2]
    others = np.setdiff1d(np.arange(len(collection.passages)), relevant)
    chosen = others[evenly(len(others), SAMPLE["passages"] - len(relevant))]
    return np.union1d(relevant, chosen).astype(np.int64)


def evenly(count: int, sample: int) -> Int64:
    """Rows of at most `sample` of `count` things, at even distances."""
    return np.unique(np.linspace(0, count - 1, min(count, sample)).astype(np.int64))
