"""The protocol that every source of a collection follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from pipeline.formats.judgments import Judgments
from pipeline.formats.records import Batch


class Source(Protocol):
    """A collection in one layout. Each method may be called repeatedly, with the same result."""

    def identity(self) -> dict[str, dict[str, Any]]:
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
