"""The protocol that every source of a collection follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from pipeline.formats.judgments import Judgments
from pipeline.formats.records import Batch


class Source(Protocol):
    """A collection in one layout. Each method may be called more than once, and then gives the same."""

    def identity(self) -> dict[str, dict[str, Any]]:
        """What determines each of `corpus`, `queries` and `qrels` before slicing, as plain JSON.

        Cheap: bytes are hashed and branches resolved, but nothing is parsed.
        """
        ...

    def size(self) -> tuple[int | None, str]:
        """The sum of `advance` over all batches of `passages`, if it is known, and its unit."""
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
