"""The parts of `metrics.json` that only some kinds of retrievers report: the table of their keys and classes.

A class is imported when a result has its key, so that reading results stays light.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline.core.json_record import Section


def _vectors() -> type[Section]:
    from pipeline.retrievers.dense import VectorsCost

    return VectorsCost


def _index() -> type[Section]:
    from pipeline.retrievers.dense import IndexCost

    return IndexCost


def _against_exact() -> type[Section]:
    from pipeline.retrievers.ranking import AgainstExact

    return AgainstExact


def _parity() -> type[Section]:
    from pipeline.retrievers.parity import Parity

    return Parity


def _chunks() -> type[Section]:
    from pipeline.retrievers.texts import Chunking

    return Chunking


def _sparsity() -> type[Section]:
    from pipeline.retrievers.sparse import Sparsity

    return Sparsity


def _first_stage() -> type[Section]:
    from pipeline.retrievers.reranked import FirstStage

    return FirstStage


def _reranking() -> type[Section]:
    from pipeline.retrievers.reranked import Reranking

    return Reranking


def _of() -> type[Section]:
    from pipeline.retrievers.fused import Parts

    return Parts


def _fusion() -> type[Section]:
    from pipeline.retrievers.fused import FusionFacts

    return FusionFacts


SECTIONS: dict[str, Callable[[], type[Section]]] = {
    "vectors": _vectors,
    "chunks": _chunks,
    "index": _index,
    "against_exact": _against_exact,
    "parity": _parity,
    "sparsity": _sparsity,
    "first_stage": _first_stage,
    "reranking": _reranking,
    "of": _of,
    "fusion": _fusion,
}
"""By key, what imports the class. To add one, write its class in the kind's file and its line here."""
