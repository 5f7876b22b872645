"""Collections of three files in one folder: what the readers of such layouts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from pipeline.formats.blocks import collection_folder, find, hashed


@dataclass(frozen=True)
class FolderSource:
    """A file of passages, one of queries and one of judgments, each plain or gzip.

    Attributes:
        layout: The name of the layout, as in keys.
    """

    layout: ClassVar[str]
    corpus_file: Path
    queries_file: Path
    qrels_file: Path

    @classmethod
    def find(cls, path: str, names: Sequence[Sequence[str]], allowed: str) -> Self:
        """Find the files.

        Args:
            path: The folder.
            names: The names that each of the three files may have.
            allowed: The layout, for messages.

        Raises:
            InputError: The folder or one of its files does not exist.
        """
        folder = collection_folder(path, allowed)
        return cls(*(find(folder, each, allowed) for each in names))

    def identity(self) -> dict[str, dict[str, Any]]:
        """The three files' bytes."""
        files = {"corpus": self.corpus_file, "queries": self.queries_file, "qrels": self.qrels_file}
        return {part: {"layout": self.layout, **hashed(path)} for part, path in files.items()}

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus file."""
        return self.corpus_file.stat().st_size, "B"
