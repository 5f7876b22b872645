"""The parts of `metrics.json` that only some kinds of retrievers report: a table of keys and classes."""

from __future__ import annotations

from importlib import import_module

from pipeline.core.json_record import Section

SECTIONS = {
    "vectors": "pipeline.retrievers.dense:VectorsCost",
    "chunks": "pipeline.retrievers.texts:Chunking",
    "index": "pipeline.retrievers.dense:IndexCost",
    "against_exact": "pipeline.retrievers.ranking:AgainstExact",
    "parity": "pipeline.retrievers.parity:Parity",
    "sparsity": "pipeline.retrievers.sparse:Sparsity",
    "first_stage": "pipeline.retrievers.ranking:FirstStage",
    "reranking": "pipeline.retrievers.reranked:Reranking",
    "of": "pipeline.retrievers.fused:Parts",
    "fusion": "pipeline.retrievers.fused:FusionFacts",
}
"""By key "module:class". To add one, write its class in the kind's file and its line here."""


def section_class(key: str) -> type[Section]:
    """The class of a key, imported when a result has the key, so that reading results stays light."""
    module, _, name = SECTIONS[key].partition(":")
    found: type[Section] = getattr(import_module(module), name)
    return found
