"""What shapes a collection's content? Said without parsing it, for the keys of what is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.config import DataSettings
from pipeline.formats.source import Source
from pipeline.storage.hashing import file_changed

SCHEMA = 2  # of reading, joining, slicing and storing; raise it when any of them gives other content


@dataclass(frozen=True)
class Identity:
    """Plain JSON values that change whenever the part's content can.

    Paths are not in them: the same files elsewhere are the same collection.

    Attributes:
        passages: Of the corpus.
        queries: Of the queries. The corpus is in it, because a query none of whose judged passages is there
            is dropped; a slice of N passages is not, because it keeps all judged ones.
        qrels: Of the judgments by row number: of everything.
    """

    passages: dict[str, Any]
    queries: dict[str, Any]
    qrels: dict[str, Any]


def identify(config: DataSettings) -> Identity:
    """The identity of a collection, from its files' bytes or its commit on the hub.

    Raises:
        InputError: A file is missing, or the hub does not know the dataset.
    """
    source: Source = config.open()
    parts = source.identity()
    asked = {"queries": parts["queries"], "qrels": parts["qrels"], "first_queries": config.queries}
    size = config.passages_kept
    corpus = {"schema": SCHEMA, "corpus": parts["corpus"]}
    return Identity(
        passages=corpus | ({"size": size, **asked} if size else {}),
        queries=corpus | asked,
        qrels=corpus | asked | {"size": size},
    )


def check(config: DataSettings, identity: Identity) -> None:
    """Refuse a collection that is no longer what was identified.

    Raises:
        InputError: Its files were written, or its branch on the hub moved.
    """
    if identify(config) != identity:
        raise file_changed(f"the collection of {getattr(config, 'path', config.source)}")
