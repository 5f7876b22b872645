"""Sources of collections: the protocol that all follow, and the function that opens each kind of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from pipeline.config import SOURCES, DataSettings, ManySettings
from pipeline.core.errors import InputError
from pipeline.core.plugins import import_and_call
from pipeline.core.records import JsonObject
from pipeline.data.sources import folders
from pipeline.data.sources.repos import Repo
from pipeline.formats.judgments import Judgments
from pipeline.formats.texts import Batch

__all__ = ["OPENERS", "Repo", "Source", "open_source"]


class Source(Protocol):
    """A collection in one layout. Each method may be called repeatedly, with the same result."""

    def identity(self) -> dict[str, JsonObject]:
        """Plain JSON that determines each of `corpus`, `queries` and `qrels`, before slicing.

        Cheap: bytes are hashed and branches resolved, but nothing is parsed.
        """
        ...

    def size(self) -> tuple[int | None, str]:
        """The sum of `advance` over all batches of `passages`, None if unknown, and its unit."""
        ...

    def passages(self) -> Iterator[Batch]:
        """The corpus, in its own order."""
        ...

    def queries(self) -> Iterator[Batch]:
        """The queries, in their own order, judged or not."""
        ...

    def judgments(self) -> Judgments:
        """The judgments of the chosen split."""
        ...


OPENERS: dict[str, Callable[..., Source]] = {
    "sample": folders.open_folder,
    "beir": partial(import_and_call, "data.sources.layouts:open_beir"),
    "msmarco": folders.open_folder,
    "flag": folders.open_folder,
    "table": folders.open_table,
    "hub": partial(import_and_call, "data.sources.positives:open_positives"),
    "ir_datasets": partial(import_and_call, "data.sources.catalogue:open_catalogue"),
    "air-bench": partial(import_and_call, "data.sources.layouts:open_air_bench"),
    "belebele": partial(import_and_call, "data.sources.layouts:open_belebele"),
    "bright": partial(import_and_call, "data.sources.layouts:open_bright"),
}
"""What opens the settings of each built-in source, by its name."""


def open_source(settings: DataSettings) -> Source:
    """The reader of a collection; refused without its files, and for a list of collections."""
    if isinstance(settings, ManySettings):
        raise InputError(
            "data names several collections",
            allowed="one collection here",
            fix="name one of them by data.source",
        )
    opener: Callable[..., Source] = OPENERS.get(settings.source) or SOURCES.opener(settings.source)
    return opener(settings)
