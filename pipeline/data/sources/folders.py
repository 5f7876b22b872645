"""Collections of three files in one folder: passages, queries and judgments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from pipeline.core.errors import InputError
from pipeline.storage.hashing import hash_user_file


@dataclass(frozen=True)
class FolderSource:
    """A source of three files, which layouts derive from.

    Attributes:
        layout: Name of the layout, part of the files' identity.
        expected: The files of the layout, for error messages.
        judgments_files: The files of judgments, with a star for the split.
        corpus_file: The passages.
        queries_file: The queries.
        qrels_file: The judgments of one split.
    """

    layout: ClassVar[str]
    expected: ClassVar[str]
    judgments_files: ClassVar[str]
    corpus_file: Path
    queries_file: Path
    qrels_file: Path

    @classmethod
    def find(cls, path: str, corpus: list[str], queries: list[str], qrels: list[str]) -> Self:
        """Find the files in the folder `path`: of each list the first name that exists, plain or with `.gz`.

        Raises:
            InputError: The folder or one of its files is missing.
        """
        folder = Path(path)
        if not folder.is_dir():
            what = "is a file" if folder.is_file() else "no such folder"
            allowed = f"a folder with {cls.expected}"
            raise InputError(f"data.path {folder}: {what}", allowed=allowed, fix="check the path")
        return cls(*(cls._first(folder, names) for names in (corpus, queries, qrels)))

    @classmethod
    def _first(cls, folder: Path, names: list[str]) -> Path:
        for name in names:
            for path in (folder / name, folder / f"{name}.gz"):
                if path.is_file():
                    return path
        splits = cls._splits(folder)
        raise InputError(
            f"{folder}: no file {' or '.join(names)} (plain or .gz)"
            + (f"; its judgments are of split {' and '.join(splits)}" if splits else ""),
            allowed=cls.expected,
            fix="add the file, or check data.path and data.split",
        )

    @classmethod
    def _splits(cls, folder: Path) -> list[str]:
        """The names of the splits that a folder has judgments of, sorted."""
        before, after = str(folder / cls.judgments_files).split("*")
        files = [*folder.glob(cls.judgments_files), *folder.glob(f"{cls.judgments_files}.gz")]
        found = {str(path).removesuffix(".gz").removeprefix(before).removesuffix(after) for path in files}
        return sorted(found)

    def identity(self) -> dict[str, dict[str, Any]]:
        """The three files' bytes."""
        files = {"corpus": self.corpus_file, "queries": self.queries_file, "qrels": self.qrels_file}
        return {part: {"layout": self.layout, **hashed(path)} for part, path in files.items()}

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus file."""
        return self.corpus_file.stat().st_size, "B"


def hashed(*paths: Path) -> dict[str, Any]:
    """The identity of files: their bytes, without names and folders."""
    return {"sha256": [hash_user_file(path) for path in paths]}
