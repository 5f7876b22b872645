"""The identity of a collection: what determines its content, without parsing it, for artifact keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.config import DataConfig
from pipeline.data.sources.catalog import open_source
from pipeline.storage.disk import changed

SCHEMA = 3  # of reading, joining, slicing and storing; raise it when any of them gives other content


@dataclass(frozen=True)
class Identity:
    """For each part of a collection, plain JSON that changes whenever the part's content can.

    Paths are not in it: the same files elsewhere are the same collection.

    Attributes:
        passages: Identity of the corpus.
        queries: Identity of the queries. It includes the corpus, because a query is dropped if the corpus has
            none of its judged passages; but not a slice of N passages, which keeps all judged ones.
        qrels: Identity of the judgments by row number, so of everything.
    """

    passages: dict[str, Any]
    queries: dict[str, Any]
    qrels: dict[str, Any]


def identify(config: DataConfig) -> Identity:
    """The identity of a collection, from its files' bytes or its commit on the hub.

    Raises:
        InputError: A file is missing, or the hub does not know the dataset.
    """
    parts = open_source(config).identity()
    selection = {"queries": parts["queries"], "qrels": parts["qrels"], "first_queries": config.queries}
    size = config.corpus if isinstance(config.corpus, int) else None
    corpus = {"schema": SCHEMA, "corpus": parts["corpus"]}
    return Identity(
        passages=corpus | ({"size": size, **selection} if size else {}),
        queries=corpus | selection,
        qrels=corpus | selection | {"size": size},
    )


def check(config: DataConfig, identity: Identity) -> None:
    """Refuse a collection whose identity has changed.

    Raises:
        InputError: Its files have changed, or its branch on the hub has moved.
    """
    if identify(config) != identity:
        raise changed(f"data.path {config.path}: the collection")
