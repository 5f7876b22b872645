"""The identity of a collection, for artifact keys: hashes and ids that determine its content, unparsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.config import DataSettings
from pipeline.data.sources import open_source
from pipeline.storage.hashing import file_changed

SCHEMA = 3  # of reading, joining, slicing and storing; raise it when any of them gives other content
JUDGED_SCHEMA = 2  # of choosing queries and storing judgments; raise it when passages stay the same


@dataclass(frozen=True)
class Identity:
    """For each part of a collection, plain JSON that changes whenever the part's content can.

    It has no paths: the same files elsewhere are the same collection.

    Attributes:
        passages: Identity of the corpus.
        queries: Identity of the queries. It includes the judgments, because only judged queries are kept; but
            not the corpus, which does not matter to that.
        qrels: Identity of the judgments. It includes everything, as they are stored by row number.
    """

    passages: dict[str, Any]
    queries: dict[str, Any]
    qrels: dict[str, Any]


def identify(config: DataSettings) -> Identity:
    """The identity of a collection, from its files' bytes or its commit on the hub."""
    source = open_source(config)
    parts = source.identity()
    selection = {"queries": parts["queries"], "qrels": parts["qrels"], "first_queries": config.queries}
    size = config.passages_kept
    corpus = {"schema": SCHEMA, "corpus": parts["corpus"]}
    judged = {"schema": [SCHEMA, JUDGED_SCHEMA], **selection}
    return Identity(
        passages=corpus | ({"size": size, **selection} if size else {}),
        queries=judged,
        qrels=corpus | judged | {"size": size, "missing_passages": config.missing_passages},
    )


def check(config: DataSettings, identity: Identity) -> None:
    """Refuse a collection whose files have changed since, or whose branch on the hub has moved."""
    if identify(config) != identity:
        raise file_changed(f"the collection of {getattr(config, 'path', config.source)}")
